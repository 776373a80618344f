# SPDX-License-Identifier: Apache-2.0
"""The steps of a control plane that the operator runs itself, in their order."""

from collections.abc import Iterable, Sequence

import msgspec

from tenancy import keys
from tenant_operator.core import credentials, databases, lost_namespace, rollouts, starts
from tenant_operator.core.conditions import ConditionType, Finding, fails
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.probes import ServerPodsProbe
from tenant_operator.core.steps import ClaimNamespace, PatchCluster
from tenant_operator.core.versions import marked
from tenant_operator.core.workloads import Readiness, readiness_of
from tenant_operator.core.writes import apply_all, apply_if_needed
from tenant_operator.datastores import etcd
from tenant_operator.datastores.choice import datastore_of
from tenant_operator.datastores.port import Datastore
from tenant_operator.life.deletion import FINALIZER
from tenant_operator.life.requests import Requests
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.exposure import OutsideEndpoint, outside_endpoint
from tenant_operator.model.objects import Object, ref_of
from tenant_operator.provisioners.native.manifests import DATASTORE
from tenant_operator.provisioners.native.manifests import groups as native_groups
from tenant_operator.provisioners.native.network import root_namespace
from tenant_operator.provisioners.port import Group

_WORKLOADS = ("Deployment", "StatefulSet")
_AWAITED_S = 1.0
# A probe's result is used by the plans that follow it, and not when the tenant sleeps again another day.
_KNOWN_S = 10.0


def claim(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, *, is_restoring: bool = False
) -> bool:
    """The finalizer, before anything is made, and the root namespace. Returns whether both are there, with
    what a control plane that has run has left there."""
    meta = observed.virtual_cluster.metadata
    if FINALIZER not in meta.finalizers:
        patch = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "finalizers": [*meta.finalizers, FINALIZER],
            }
        }
        builder.steps.append(PatchCluster(patch))
        builder.wait(f"finalizer of VirtualCluster {meta.namespace}/{meta.name}")
        return False
    manifest = root_namespace(control_plane, rollouts.since(observed, control_plane.key))
    live = observed.live("Namespace", "", control_plane.key)
    if live is None:
        builder.steps.append(ClaimNamespace(manifest))
        builder.wait(f"Namespace {control_plane.key}")
        return False
    lost = lost_namespace.root_namespace_problem(observed, control_plane)
    if lost is not None and not (is_restoring and not live.is_ending):
        builder.lose(lost)
    if live.is_ending:
        builder.wait(f"end of Namespace {control_plane.key}, which is being deleted")
        return False
    apply_if_needed(builder, live, manifest)
    return not builder.is_lost


def service_addresses(observed: Observed, control_plane: ControlPlane) -> tuple[str, ...]:
    """The cluster IPs of the API server's Service; empty before it has them."""
    live = observed.live("Service", control_plane.key, names.API_SERVER_SERVICE)
    if live is None:
        return ()
    spec = live.value.get("spec") or {}
    return tuple(each for each in spec.get("clusterIPs") or () if each and each != "None")


def as_made(observed: Observed, control_plane: ControlPlane) -> ControlPlane:
    """With as many members of its store as it was made with."""
    members = _store_members(observed, control_plane)
    if not members or members == control_plane.size.etcd.replicas:
        return control_plane
    store = msgspec.structs.replace(control_plane.size.etcd, replicas=members)
    size = msgspec.structs.replace(control_plane.size, etcd=store)
    return msgspec.structs.replace(control_plane, size=size)


def outside(observed: Observed, control_plane: ControlPlane) -> OutsideEndpoint:
    """Where people reach the API server from outside of the super cluster."""
    live = observed.live("Service", control_plane.key, names.API_SERVER_SERVICE)
    service = None if live is None else live.value
    return outside_endpoint(control_plane.exposure, service, observed.node_addresses)


def manifest_inputs(observed: Observed, control_plane: ControlPlane, settings: Settings) -> ManifestInputs:
    """What manifests need of objects that are there, and of the configuration."""
    return ManifestInputs(
        service_addresses=service_addresses(observed, control_plane),
        digests=credentials.digests(observed, control_plane),
        vn_agent_port=settings.vn_agent_port,
        node_cidrs=settings.node_cidrs,
        dns_cidrs=settings.dns_cidrs,
        client_cidrs=settings.client_cidrs,
        store_cidrs=settings.store_cidrs,
        store_endpoints=settings.store_endpoints,
        operator_namespace=settings.namespace,
        has_started_store=_has_started_store(observed, control_plane),
        store_members=_store_members(observed, control_plane),
    )


def stages(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    requests: Requests,
    *,
    is_known: bool,
) -> Finding | None:
    """All steps in the claimed namespace that can be taken now, up to the first object to wait for.

    `is_known`: whether it is known what the workloads are to run; else they are left as they are.

    Returns the condition of certificates, once they are looked at.
    """
    addresses = service_addresses(observed, control_plane)
    inputs = manifest_inputs(observed, control_plane, settings)
    datastore = datastore_of(control_plane, inputs)
    if datastore.problem:
        builder.block("DatastoreUnusable", datastore.problem)
        return None
    groups = [
        group._replace(
            manifests=tuple(
                _with_live_claims(observed, marked(each, control_plane)) for each in group.manifests
            )
        )
        for group in native_groups(control_plane, inputs)
    ]
    network, rest = groups[0], groups[1:]
    apply_all(builder, observed, network.manifests)
    if not addresses:
        builder.wait(f"cluster IP of Service {control_plane.key}/{names.API_SERVER_SERVICE}")
        return None
    if control_plane.is_asleep:
        builder.has_applied_all = _put_to_sleep(builder, observed, control_plane, rest) and not builder.steps
        return None
    # What fell due while it slept is done before a pod starts.
    if missing := _missing_credential(observed, control_plane, datastore):
        apply_all(builder, observed, rest[0].manifests)
        builder.block("CredentialMissing", f"waiting for {missing}")
        return None
    files = _files(manifest for group in groups for manifest in group.manifests)
    reached = outside(observed, control_plane)
    if reached.waits_for:
        message = (
            f"Service {control_plane.key}/{names.API_SERVER_SERVICE} has not {reached.waits_for} yet;"
            " see what assigns it, or change spec.exposure"
        )
        builder.findings.append(fails(ConditionType.UP_TO_DATE, "NotExposed", message))
    made = credentials.settle(builder, observed, control_plane, addresses, reached, settings, requests, files)
    builder.rotations, builder.rotated = made.rotations, made.rotated
    _remove_revoked(builder, requests)
    has_store = databases.settle(builder, observed, control_plane, inputs)
    is_complete = has_store and made.has_all and is_known
    if is_complete and starts.may_start(builder, observed, control_plane, settings):
        is_through = _roll_out(builder, observed, control_plane, settings, rest)
        builder.has_applied_all = is_through and not builder.steps
    return made.finding(observed.now_s)


def _remove_revoked(builder: PlanBuilder, requests: Requests) -> None:
    """Remove annotations by which a person ended a former key, where no rotation waits: a later one may have
    the same token, as one by age has that of the last request. They go before that begins."""
    under_way = {each.what for each in builder.rotations or ()}
    if left := sorted(requests.revoked.keys() - under_way):
        annotations = {f"{keys.REVOKE_PREFIX}{what}": None for what in left}
        builder.steps.insert(0, PatchCluster({"metadata": {"annotations": annotations}}))


def _files(manifests: Iterable[Object]) -> dict[str, str]:
    """Of each workload the digest of what its pods read at their start alone."""
    return {
        manifest["metadata"]["name"]: (manifest["spec"]["template"]["metadata"].get("annotations") or {}).get(
            names.FILES_DIGEST, ""
        )
        for manifest in manifests
        if manifest["kind"] in _WORKLOADS
    }


def _roll_out(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    groups: Sequence[Group],
) -> bool:
    """Apply the workloads in their order; each waits for the one before. Returns whether the last is
    reached."""
    rollout = rollouts.Rollout(builder, observed, control_plane, settings)
    is_first = not readiness_of(
        names.API_SERVER, observed.live("Deployment", control_plane.key, names.API_SERVER)
    ).desired
    for group in groups:
        apply_all(builder, observed, [each for each in group.manifests if rollout.may_apply(each)])
        if rollout.changed and group.waits:
            builder.wait(f"{rollout.changed} to have other pods")
            return False
        # One that slept is not settled with its no pods: a controller manager waits for an API server for ten
        # seconds alone, and ends.
        readiness = _readiness(observed, group.manifests)
        behind = [each for each in readiness if not (each.is_settled and each.desired)]
        if behind and group.waits:
            builder.wait(behind[0].sentence)
            # A first API server, as one that is woken, waits for its store itself, for 20 s. Its pod is
            # scheduled meanwhile.
            if not (is_first and group.name == DATASTORE):
                return False
    return builder.held is None


def _with_live_claims(observed: Observed, manifest: Object) -> Object:
    """A StatefulSet with the templates of claims that it has: the API server refuses any other."""
    live = observed.objects.get(ref_of(manifest)) if manifest["kind"] == "StatefulSet" else None
    templates = (live.value["spec"].get("volumeClaimTemplates") or []) if live is not None else []
    if not templates:
        return manifest
    return {**manifest, "spec": {**manifest["spec"], "volumeClaimTemplates": templates}}


def _put_to_sleep(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, groups: Sequence[Group]
) -> bool:
    """End the pods, the store's last: the API server may have requests under way. Returns whether none is
    left."""
    for group in reversed(groups):
        runs = [each for each in _readiness(observed, group.manifests) if each.desired]
        if group.name == DATASTORE and runs and not _await_servers(builder, observed, control_plane):
            return False
        # One that was created asleep has no workload yet, and its keys are made before the first.
        apply_all(
            builder,
            observed,
            [each for each in group.manifests if not _is_workload(each) or ref_of(each) in observed.objects],
        )
        left = [each for each in _readiness(observed, group.manifests) if each.replicas]
        if left:
            builder.wait(f"{left[0].replicas} pods of {left[0].name} to end")
            return False
    return True


def _is_workload(manifest: Object) -> bool:
    return manifest["kind"] in _WORKLOADS


def _await_servers(builder: PlanBuilder, observed: Observed, control_plane: ControlPlane) -> bool:
    """Ask for the pods of the API server that are left: without its store one takes most of a minute to end.

    Returns whether the last one has ended."""
    probe = ServerPodsProbe(control_plane.key)
    found = observed.probes.get(probe.name)
    if found is not None and found.is_ok and observed.now_s - found.at < _KNOWN_S:
        return True
    builder.probes.append(probe)
    builder.look_again(_AWAITED_S)
    builder.wait(f"end of Pod {control_plane.key}/{found.detail}" if found else "list of API server pods")
    return False


def _readiness(observed: Observed, manifests: tuple[Object, ...]) -> list[Readiness]:
    """Of the workloads among these objects."""
    refs = [ref_of(each) for each in manifests if _is_workload(each)]
    return [readiness_of(ref.name, observed.objects.get(ref)) for ref in refs]


def _missing_credential(observed: Observed, control_plane: ControlPlane, datastore: Datastore) -> str:
    """The Secret for a shared etcd, which a person makes; empty if it is there, or not needed."""
    key, secret = control_plane.key, names.STORE_CREDENTIALS
    if (
        control_plane.release.datastore.type != "shared-etcd"
        or secret not in datastore.secrets
        or observed.live("Secret", key, secret) is not None
    ):
        return ""
    labels = ",".join(f"{name}={value}" for name, value in sorted(control_plane.labels.items()))
    return f"Secret {key}/{secret} with labels {labels}; tenant_operator/datastores/README.md has its keys"


def _store_members(observed: Observed, control_plane: ControlPlane) -> int:
    """How many members its etcd was made with, which a change of the class does not change; 0 before. The
    ConfigMap says it while there is no StatefulSet: it may be deleted or edited alone."""
    store = observed.live("StatefulSet", control_plane.key, names.ETCD)
    found = etcd.members_of(store.value) if store is not None else 0
    if found:
        return found
    known = observed.live("ConfigMap", control_plane.key, names.ETCD_CONFIG)
    members = (known.value.get("data") or {}).get(names.ETCD_MEMBERS_KEY, "") if known is not None else ""
    return int(members) if members in ("1", "3") else 0


def _has_started_store(observed: Observed, control_plane: ControlPlane) -> bool:
    """Whether all members of its store were ready once: from then on a lost one joins those that are
    there. If all are given up, none is there."""
    if lost_namespace.is_empty_allowed(observed, control_plane):
        return False
    known = observed.live("ConfigMap", control_plane.key, names.ETCD_CONFIG)
    if known is not None and "existing" in known.value["data"].values():
        return True
    store = readiness_of(names.ETCD, observed.live("StatefulSet", control_plane.key, names.ETCD))
    return store.is_settled and store.desired > 0
