# SPDX-License-Identifier: Apache-2.0
"""What is to be done about one Network of a tenant. Pure.

Only networks of type `flat` are served. Other types, and those whose Services get their addresses from
outside (`ipam: External`), belong to a provider: neither their status nor their finalizers are touched.

A network is Ready as soon as its DNS Service has an address, as in Arktos: pods that start before the server
does ask again. `dnsServiceIP` is the tenant's own cluster IP of that Service. In guests both it and the super
cluster's lead to the server (kubeproxy-ext); dnsconfig takes the super cluster's from the Service itself.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from daemonkit.kube.resources import EventReason
from syncer.core.objects import (
    Object,
    SyncedKind,
    is_deleting,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)
from syncer.core.plan import Action, Create, Delete, Patch, Side
from syncer.networks.objects import (
    KUBE_SYSTEM,
    MANAGER,
    MAX_NAME,
    NETWORK,
    SERVICE,
    Desired,
    NetworkSettings,
    covers,
    desired_objects,
    dns_service_name,
    is_ours,
    removal_order,
)
from tenancy import keys, names

FINALIZER = "arktos.futurewei.com/network"
FLAT, EXTERNAL = "flat", "External"
_MAX_MESSAGE = 500


class Phase(enum.StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class NetworkEvent(EventReason):
    """Why an Event about a Network is posted."""

    IN_USE = "NetworkInUse"
    NAME_TAKEN = "NetworkObjectNotOurs"
    PROVISION_FAILED = "FailedProvision"
    CRD_MISSING = "NetworkCRDMissing"


EVENT_REASONS = {
    NetworkEvent.IN_USE: "The Network is being deleted, and a pod still uses it: the deletion waits.",
    NetworkEvent.NAME_TAKEN: "An object that is not vc-syncer's has a name that the Network needs.",
    NetworkEvent.PROVISION_FAILED: "An object of the Network cannot be made; the message has the reason.",
    NetworkEvent.CRD_MISSING: "The tenant lacks the definition of Networks.",
}


class Ref(NamedTuple):
    """One object of the tenant."""

    resource: str
    namespace: str
    name: str


class NetworkPods(msgspec.Struct, frozen=True):
    """Whether pods use a network: `example` is one, as `namespace/name`, or empty."""

    example: str = ""


class Problem(msgspec.Struct, frozen=True):
    """(reason, message) for the tenant's Event and the operator."""

    reason: NetworkEvent
    message: str


class NetworkPlan(msgspec.Struct, frozen=True):
    """`actions` in order; after those the network is planned again. `is_waiting`: later, without actions."""

    actions: tuple[Action, ...] = ()
    problems: tuple[Problem, ...] = ()
    is_waiting: bool = False


def is_served(network: Object) -> bool:
    """Whether a Network is ours to serve, or was when we began."""
    spec = network.get("spec")
    fields: Object = spec if isinstance(spec, dict) else {}
    service = fields.get("service")
    ipam = service.get("ipam") if isinstance(service, dict) else None
    is_flat = fields.get("type") == FLAT and ipam != EXTERNAL
    return is_flat or (is_deleting(network) and is_ours(network))


def objects_of(network: str) -> tuple[tuple[SyncedKind, str, str], ...]:
    """(kind, namespace, name) of all objects that `plan` must be given, if they exist."""
    return removal_order(network)


def plan(
    network: Object,
    found: Mapping[Ref, Object],
    settings: NetworkSettings,
    *,
    apiserver: Object | None = None,
    pods: NetworkPods | None = None,
) -> NetworkPlan:
    """What to do next about a Network, given its objects.

    `apiserver` is the EndpointSlice `default/kubernetes`. `pods` matters while the Network is being
    deleted; None is unknown.
    """
    if not is_served(network):
        return NetworkPlan()
    if is_deleting(network):
        return _plan_removal(network, found, pods)
    name = name_of(network)
    if len(name) > MAX_NAME or not names.is_dns_label(name):
        message = f"its name is not a DNS label of at most {MAX_NAME} characters"
        return NetworkPlan(_status(network, Phase.FAILED, message), (_failed(message),))
    if adoption := _adoption(network):
        return NetworkPlan(adoption)
    actions: list[Action] = []
    problems: list[Problem] = []
    for desired in desired_objects(name, settings, apiserver):
        actual = found.get(_ref(desired.kind, desired.body))
        if actual is not None and not is_ours(actual):
            problems.append(_not_ours(desired.kind, actual))
        else:
            actions += _bring(desired, actual)
    if actions:
        return NetworkPlan(tuple(actions), tuple(problems))
    address = _cluster_ip(found.get(Ref(SERVICE.resource.plural, KUBE_SYSTEM, dns_service_name(name))))
    if not address:
        message = f"Service {KUBE_SYSTEM}/{dns_service_name(name)} has no cluster IP"
        return NetworkPlan(_status(network, Phase.PENDING, message), tuple(problems), is_waiting=True)
    status = _status(network, Phase.READY, "", address)
    return NetworkPlan(status, tuple(problems), is_waiting=apiserver is None)


def failure_status(network: Object, message: str) -> tuple[Action, ...]:
    """The status of a network whose objects the API server refuses; a Ready one keeps its phase."""
    if is_deleting(network) or _status_of(network).get("phase") == Phase.READY:
        return ()
    return _status(network, Phase.FAILED, message)


def _adoption(network: Object) -> tuple[Action, ...]:
    """Our finalizer and our label: by the label it is known whose the finalizer is."""
    meta = metadata(network)
    finalizers = list(meta.get("finalizers") or ())
    body: Object = {}
    if FINALIZER not in finalizers:
        body["finalizers"] = [*finalizers, FINALIZER]
    if labels_of(network).get(keys.MANAGED_BY) != MANAGER:
        body["labels"] = {keys.MANAGED_BY: MANAGER}
    return (_patch(network, {"metadata": body}),) if body else ()


def _bring(desired: Desired, actual: Object | None) -> list[Action]:
    if actual is None:
        return [Create(Side.TENANT, desired.kind, desired.body)]
    if is_deleting(actual):
        return []
    body: Object = {}
    for name, value in _owned(desired).items():
        if not covers(actual.get(name), value):
            body[name] = value
    if not body:
        return []
    namespace, name = namespace_of(actual), name_of(actual)
    return [Patch(Side.TENANT, desired.kind, namespace, name, uid_of(actual), body)]


def _owned(desired: Desired) -> Object:
    """The fields of a desired object that an existing one is compared in."""
    found = {**desired.body, "metadata": {"labels": metadata(desired.body)["labels"]}}
    if desired.only_at_creation:
        spec = found["spec"]
        found["spec"] = {name: spec[name] for name in spec if name not in desired.only_at_creation}
    return found


def _plan_removal(network: Object, found: Mapping[Ref, Object], pods: NetworkPods | None) -> NetworkPlan:
    finalizers = list(metadata(network).get("finalizers") or ())
    if FINALIZER not in finalizers:
        return NetworkPlan()
    if pods is None:
        return NetworkPlan(_status(network, Phase.TERMINATING, ""), is_waiting=True)
    if pods.example:
        message = f"it is deleted once no pod uses it; {pods.example} does"
        problem = Problem(NetworkEvent.IN_USE, message)
        return NetworkPlan(_status(network, Phase.TERMINATING, message), (problem,), is_waiting=True)
    if status := _status(network, Phase.TERMINATING, ""):
        return NetworkPlan(status)
    present = [
        (kind, actual)
        for kind, namespace, name in removal_order(name_of(network))
        if (actual := found.get(Ref(kind.resource.plural, namespace, name))) is not None and is_ours(actual)
    ]
    deletes = tuple(
        Delete(Side.TENANT, kind, namespace_of(actual), name_of(actual), uid_of(actual))
        for kind, actual in present
        if not is_deleting(actual)
    )
    if present:
        return NetworkPlan(deletes, is_waiting=not deletes)
    left = [each for each in finalizers if each != FINALIZER]
    return NetworkPlan((_patch(network, {"metadata": {"finalizers": left}}),))


def _patch(network: Object, body: Object) -> Patch:
    # A merge patch replaces the list of finalizers: refused if another one has changed it meanwhile.
    return Patch(
        Side.TENANT, NETWORK, "", name_of(network), uid_of(network), body, version=version_of(network)
    )


def _status(network: Object, phase: Phase, message: str, address: str = "") -> tuple[Action, ...]:
    actual = _status_of(network)
    desired: Object = {"phase": str(phase), "message": message[:_MAX_MESSAGE]}
    if address:
        desired["dnsServiceIP"] = address
    if all((actual.get(name) or "") == value for name, value in desired.items()):
        return ()
    status = Patch(
        Side.TENANT, NETWORK, "", name_of(network), uid_of(network), {"status": desired}, subresource="status"
    )
    return (status,)


def _status_of(network: Object) -> Object:
    status = network.get("status")
    return status if isinstance(status, dict) else {}


def _cluster_ip(service: Object | None) -> str:
    spec = {} if service is None else service.get("spec") or {}
    address = str(spec.get("clusterIP") or "")
    return "" if address == "None" else address


def _ref(kind: SyncedKind, value: Object) -> Ref:
    return Ref(kind.resource.plural, namespace_of(value), name_of(value))


def _not_ours(kind: SyncedKind, actual: Object) -> Problem:
    place = f"{namespace_of(actual)}/{name_of(actual)}".removeprefix("/")
    message = f"{kind.kind} {place} exists without label {keys.MANAGED_BY}={MANAGER}: it is used as it is"
    return Problem(NetworkEvent.NAME_TAKEN, message)


def _failed(message: str) -> Problem:
    return Problem(NetworkEvent.PROVISION_FAILED, message)
