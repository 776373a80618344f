# SPDX-License-Identifier: Apache-2.0
"""When the defaults of a tenant are applied: its rights before it is served, the others from then on, until
its inventory has their digest.

What a pass came to is in ConfigMap `defaults-inventory` of the root namespace, so that a restart finds it.
While its digest is that of the list, the tenant is asked seldom: what it deleted of the essential objects is
applied again.
"""

from collections.abc import Mapping

from daemonkit.backoff import backoff_s
from tenant_operator.core.conditions import ConditionType, Finding, fails
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.steps import SettleDefaults
from tenant_operator.defaults.desired import DefaultsInputs, DesiredList, desired_list
from tenant_operator.defaults.inventory import INVENTORY_KEY, Inventory, read_inventory
from tenant_operator.defaults.record import RECORD_KEY, PassRecord, read_record
from tenant_operator.defaults.rights import RIGHTS_FILES
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.pki.facts import data_digest

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 300.0
# Of another list: it may be the cure.
_NEXT_LIST_S = 60.0

# Beside the objects of the list a pass reads a credential, and writes what it came to.
_PASS_REQUESTS = 2
# For each request, of an idle tenant: half of the two an hour that it may cost.
_REQUEST_S = 3600.0
# While vc-syncer reports that it is refused: its rights may be gone.
_REFUSED_PASS_S = 60.0
_REFUSED = frozenset({"NotReachable", "CredentialsUnusable"})


def next_pass_s(objects: int, *, is_refused: bool) -> float:
    """How long after a pass the tenant is asked whether it still has its essential objects.

    A tenant may delete its own rights, or vc-syncer's. The latter shows at once, by vc-syncer's condition.
    """
    if is_refused:
        return _REFUSED_PASS_S
    return (objects + _PASS_REQUESTS) * _REQUEST_S


def _is_syncer_refused(observed: Observed) -> bool:
    conditions = observed.virtual_cluster.status.conditions
    return any(not each.type and each.status == "True" and each.reason in _REFUSED for each in conditions)


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    credential: str = names.OPERATOR_CLIENT,
    *,
    rights_only: bool = False,
) -> list[Finding]:
    """Apply what is not applied. Returns what people have to know about it.

    `rights_only`: before the tenant is served. Without its rights vc-syncer would report that it is refused.
    """
    if not settings.builtin:
        return []
    desired = desired_list(control_plane, _inputs(observed, control_plane, settings))
    data = _data(observed, control_plane)
    inventory, record = read_inventory(data.get(INVENTORY_KEY)), read_record(data.get(RECORD_KEY))
    if rights_only:
        if has_rights(observed, control_plane, settings):
            return []
        desired = _rights_of(desired, settings, inventory)
        builder.wait(f"rights of vc-syncer in the tenant of {control_plane.key}")
    is_settled = inventory.digest == desired.digest
    if is_settled:
        due_at_s = record.at_s + next_pass_s(len(desired.objects), is_refused=_is_syncer_refused(observed))
    else:
        due_at_s = _due_at_s(record, desired)
    if due_at_s <= observed.now_s:
        meta = observed.virtual_cluster.metadata
        builder.steps.append(
            SettleDefaults(
                Ref("Secret", control_plane.key, credential),
                Ref("ConfigMap", control_plane.key, names.DEFAULTS_INVENTORY),
                desired,
                inventory,
                record,
                f"{meta.name} -n {meta.namespace}",
                control_plane.labels,
            )
        )
    builder.look_again(max(due_at_s - observed.now_s, FIRST_RETRY_S))
    if is_settled:
        return _findings(desired.problems)
    is_known = record.attempts > 0 or record.digest == desired.digest
    return _findings(record.problems if is_known else desired.problems)


def has_rights(observed: Observed, control_plane: ControlPlane, settings: Settings) -> bool:
    """Whether the tenant has had its rights: then it may be served."""
    inventory = read_inventory(_data(observed, control_plane).get(INVENTORY_KEY))
    return _rights(settings) <= {(each.kind, each.name) for each in inventory.entries}


def _rights(settings: Settings) -> set[tuple[str, str]]:
    files = [settings.builtin[name] for name in RIGHTS_FILES if name in settings.builtin]
    return {(each["kind"], each["metadata"]["name"]) for file in files for each in file.objects}


def _rights_of(desired: DesiredList, settings: Settings, inventory: Inventory) -> DesiredList:
    """The rights of the list, and what is applied already: what a list does not have is removed."""
    rights, known = _rights(settings), {each.ref for each in inventory.entries}
    return DesiredList(
        tuple(
            each for each in desired.objects if (each.ref.kind, each.ref.name) in rights or each.ref in known
        )
    )


def _data(observed: Observed, control_plane: ControlPlane) -> Mapping[str, str]:
    live = observed.live("ConfigMap", control_plane.key, names.DEFAULTS_INVENTORY)
    return {} if live is None else live.value.get("data") or {}


def _inputs(observed: Observed, control_plane: ControlPlane, settings: Settings) -> DefaultsInputs:
    client = observed.live("Secret", control_plane.key, names.METRICS_CLIENT)
    return DefaultsInputs(
        settings.builtin,
        observed.defaults,
        settings.vn_agent_authority_pem.decode(),
        "" if client is None else data_digest(client.digests),
    )


def _due_at_s(record: PassRecord, desired: DesiredList) -> float:
    """At once after a pass that ended; else later with each that did not."""
    if record.attempts == 0:
        return 0.0
    longest_s = LONGEST_RETRY_S if record.digest == desired.digest else _NEXT_LIST_S
    return record.at_s + backoff_s(record.attempts, first_s=FIRST_RETRY_S, longest_s=longest_s)


def _findings(problems: tuple[str, ...]) -> list[Finding]:
    if not problems:
        return []
    message = f"defaults of the tenant: {'; '.join(problems)}"
    return [fails(ConditionType.UP_TO_DATE, "DefaultsNotApplied", message)]
