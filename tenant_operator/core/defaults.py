# SPDX-License-Identifier: Apache-2.0
"""When the defaults of a tenant are applied: after its rights, while it is served, until its inventory has
their digest.

What a pass came to is in ConfigMap `defaults-inventory` of the root namespace, so that a restart finds it.
While its digest is that of the list, nothing is asked of the tenant.
"""

from collections.abc import Mapping

from daemonkit.backoff import backoff_s
from tenant_operator.core.conditions import ConditionType, Finding, fails
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.steps import SettleDefaults
from tenant_operator.defaults.desired import DefaultsInputs, DesiredList, desired_list
from tenant_operator.defaults.inventory import INVENTORY_KEY, read_inventory
from tenant_operator.defaults.record import RECORD_KEY, PassRecord, read_record
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.pki.facts import data_digest

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 300.0


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    credential: str = names.OPERATOR_CLIENT,
) -> list[Finding]:
    """Apply what is not applied. Returns what people have to know about it."""
    if not settings.builtin:
        return []
    desired = desired_list(control_plane, _inputs(observed, control_plane, settings))
    live = observed.live("ConfigMap", control_plane.key, names.DEFAULTS_INVENTORY)
    data: Mapping[str, str] = {} if live is None else live.value.get("data") or {}
    inventory, record = read_inventory(data.get(INVENTORY_KEY)), read_record(data.get(RECORD_KEY))
    if inventory.digest == desired.digest:
        return _findings(desired.problems)
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
    return _findings(record.problems if record.digest == desired.digest else desired.problems)


def _inputs(observed: Observed, control_plane: ControlPlane, settings: Settings) -> DefaultsInputs:
    client = observed.live("Secret", control_plane.key, names.METRICS_CLIENT)
    return DefaultsInputs(
        settings.builtin,
        observed.defaults,
        settings.vn_agent_authority_pem.decode(),
        "" if client is None else data_digest(client.digests),
    )


def _due_at_s(record: PassRecord, desired: DesiredList) -> float:
    """At once for another list; else later with each pass that did not end."""
    if record.digest != desired.digest or record.attempts == 0:
        return 0.0
    return record.at_s + backoff_s(record.attempts, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)


def _findings(problems: tuple[str, ...]) -> list[Finding]:
    if not problems:
        return []
    message = f"defaults of the tenant: {'; '.join(problems)}"
    return [fails(ConditionType.UP_TO_DATE, "DefaultsNotApplied", message)]
