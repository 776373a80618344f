# SPDX-License-Identifier: Apache-2.0
"""The deletion of a VirtualCluster: what is removed next, and the one object that is waited for. Pure.

What is there decides, not what was done: a stage has no memory, and one whose objects were never made is
over. The order:

1. The tenant's pods, with the super namespaces that vc-syncer has made: by the phase it has detached.
2. Workloads of the control plane, then the volumes that their pods mounted. `spec.volumes: Retain` keeps
   them, and with them the root namespace and the key with which the store is encrypted.
3. The database and the role in a shared server. The Secret that names them, and the root namespace, wait for
   that as long as it takes.
4. Credentials and keys, also the kubeconfig in the VirtualCluster's namespace.
5. The registration that vn-agents read.
6. The root namespace, with all that is left in it.
7. The finalizer.

A stage that does not end within its time is named, and the next ones begin: a dead node or store keeps no key
alive. The finalizer alone waits for everything: what is left would have no owner. Times count from the
deletion's timestamp, so that a restart begins none of them anew.
"""

import math
from collections.abc import Mapping

import msgspec

from tenant_operator.life.requests import time_of
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster

FINALIZER = "vcnode.io/vc-operator"

TENANT_S = 300.0
"""Since the deletion began. Pods end within 30 s, or the grace period of their own."""
WORKLOADS_S = TENANT_S + 120.0
VOLUMES_S = WORKLOADS_S + 120.0
DATABASE_S = VOLUMES_S + 60.0
CREDENTIALS_S = DATABASE_S + 60.0
FORCE_S = CREDENTIALS_S + 60.0
"""From then on pods of the control plane are deleted without a grace period: their node may be dead."""


class OwnedObject(msgspec.Struct, frozen=True):
    """An object that was made for the VirtualCluster. `detail` is what its conditions say of its end."""

    uid: str
    is_ending: bool = False
    detail: str = ""


class SharedDatabase(msgspec.Struct, frozen=True):
    """What a shared server has of the tenant. `secret` has the server's credentials; `problem`: why it cannot
    be dropped now."""

    secret: Ref
    name: str
    problem: str = ""


class DeletionFacts(msgspec.Struct, frozen=True):
    """`objects` are the operator's own, by the label of the VirtualCluster's UID; `tenant_namespaces` the
    super namespaces that vc-syncer made for its tenant. `has_synced`: both are complete."""

    virtual_cluster: VirtualCluster
    objects: Mapping[Ref, OwnedObject]
    tenant_namespaces: Mapping[str, OwnedObject]
    database: SharedDatabase | None = None
    has_synced: bool = True


class DeletionStep(msgspec.Struct, frozen=True):
    """What to do now. `removed` are deleted on condition of their UIDs, in this order.

    `waits_for`: the one object that is waited for; `deadline_s` is when the next stage begins all the same,
    or None if there is none. `is_forced`: pods in the root namespace are deleted without a grace period.
    `is_retained`: the root namespace stays. It is annotated before the finalizer is removed, as vc-syncer
    collects root namespaces without a VirtualCluster.
    """

    reason: str
    message: str
    removed: tuple[tuple[Ref, str], ...] = ()
    waits_for: Ref | None = None
    deadline_s: float | None = None
    drops_database: bool = False
    is_forced: bool = False
    is_retained: bool = False
    removes_finalizer: bool = False


class _Stage(msgspec.Struct, frozen=True):
    """`limit_s`: since the deletion began, when the next stage begins all the same."""

    reason: str
    limit_s: float
    remedy: str = "look at its conditions and finalizers"


_TENANT = _Stage(
    "TenantPodsRemaining", TENANT_S, "look at its conditions, and whether the nodes of its pods run"
)
_WORKLOADS = _Stage("WorkloadsRemaining", WORKLOADS_S)
_VOLUMES = _Stage(
    "VolumesRemaining", VOLUMES_S, "look which pod mounts it; if its node is gone, delete the Node"
)
_DATABASE = _Stage("DatabaseRemaining", DATABASE_S, "start the server, or drop them by hand")
_CREDENTIALS = _Stage("CredentialsRemaining", CREDENTIALS_S)
_REGISTRATION = _Stage("RegistrationRemaining", CREDENTIALS_S)
_OBJECTS = _Stage("ObjectsRemaining", CREDENTIALS_S)
_NAMESPACE = _Stage(
    "RootNamespaceRemaining", math.inf, "look at its conditions: they name what is left in it"
)
_ORDER = (_TENANT, _WORKLOADS, _VOLUMES, _DATABASE, _CREDENTIALS, _REGISTRATION, _OBJECTS, _NAMESPACE)

_STAGE_OF_KIND = {
    "Deployment": _WORKLOADS,
    "StatefulSet": _WORKLOADS,
    "Job": _WORKLOADS,
    "PersistentVolumeClaim": _VOLUMES,
    "Secret": _CREDENTIALS,
    "Namespace": _NAMESPACE,
}
_REGISTRATIONS = (names.REGISTERED_AUTHORITY, names.REGISTERED_CLIENT, names.REGISTERED_CLIENTS)


def next_step(facts: DeletionFacts, now_s: float) -> DeletionStep:
    """The next step of a VirtualCluster with a deletion timestamp."""
    meta = facts.virtual_cluster.metadata
    if FINALIZER not in meta.finalizers:
        return DeletionStep("NotManaged", f"VirtualCluster {meta.namespace}/{meta.name} has no {FINALIZER}")
    if not facts.has_synced:
        return DeletionStep("NotSynced", "waiting for the first lists of all owned objects")
    began_s = time_of(meta.deletion_timestamp or "") or now_s
    elapsed_s = now_s - began_s
    removed: list[tuple[Ref, str]] = []
    late: DeletionStep | None = None
    drops_database = False
    for stage in _ORDER:
        objects = _objects_of(stage, facts)
        if stage is _DATABASE and facts.database is not None:
            drops_database = True
            step = _waiting_for_database(facts.database)
        elif objects:
            step = _waiting_for(stage, objects)
        else:
            continue
        removed += [(ref, each.uid) for ref, each in _first(objects).items() if not each.is_ending]
        late = late or step
        if elapsed_s < stage.limit_s:
            break
    if late is None:
        return _completed(facts)
    has_limit = elapsed_s < stage.limit_s < math.inf
    return msgspec.structs.replace(
        late,
        removed=tuple(removed),
        deadline_s=began_s + stage.limit_s if has_limit else None,
        drops_database=drops_database,
        is_forced=elapsed_s >= FORCE_S,
    )


def _objects_of(stage: _Stage, facts: DeletionFacts) -> dict[Ref, OwnedObject]:
    if stage is _NAMESPACE and facts.database is not None:
        # It has the Secret which says that there is a database.
        return {}
    if stage is _TENANT:
        return {Ref("Namespace", "", name): each for name, each in sorted(facts.tenant_namespaces.items())}
    keeps = _keeps_volumes(facts)
    return {
        ref: each
        for ref, each in sorted(facts.objects.items())
        if _stage_of(ref, keeps=keeps) is stage and not _is_of_database(ref, facts)
    }


def _is_of_database(ref: Ref, facts: DeletionFacts) -> bool:
    """The Secret that goes with the database, by the same step."""
    return facts.database is not None and ref.name == names.STORE_CREDENTIALS


def _first(objects: Mapping[Ref, OwnedObject]) -> Mapping[Ref, OwnedObject]:
    """Without the store, as long as a program that uses it is there: it would not end without it."""
    if not any(ref.kind == "Deployment" for ref in objects):
        return objects
    return {ref: each for ref, each in objects.items() if ref.kind != "StatefulSet"}


def _stage_of(ref: Ref, *, keeps: bool) -> _Stage | None:
    """When an object is removed; None for what stays, or goes with the root namespace."""
    if keeps and (
        ref.kind in ("PersistentVolumeClaim", "Namespace") or ref.name.startswith(names.ENCRYPTION_CONFIG)
    ):
        return None
    if ref.name in _REGISTRATIONS:
        return _REGISTRATION
    return _STAGE_OF_KIND.get(ref.kind, _OBJECTS if keeps else None)


def _keeps_volumes(facts: DeletionFacts) -> bool:
    is_asked = facts.virtual_cluster.spec.volumes == "Retain"
    return is_asked and any(ref.kind == "PersistentVolumeClaim" for ref in facts.objects)


def _waiting_for(stage: _Stage, objects: Mapping[Ref, OwnedObject]) -> DeletionStep:
    # Of one that is being deleted already it is known what keeps it.
    ending = ((ref, each) for ref, each in objects.items() if each.is_ending)
    ref, each = next(ending, next(iter(objects.items())))
    detail = f" ({each.detail})" if each.detail else ""
    more = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
    message = f"waiting for the end of {ref}{detail}{more}; {stage.remedy}"
    return DeletionStep(stage.reason, message, waits_for=ref)


def _waiting_for_database(database: SharedDatabase) -> DeletionStep:
    problem = f" ({database.problem})" if database.problem else ""
    return DeletionStep(
        _DATABASE.reason,
        f"waiting for the server of {database.secret} to drop database and role {database.name}{problem}; "
        f"{_DATABASE.remedy}",
        waits_for=database.secret,
    )


def _completed(facts: DeletionFacts) -> DeletionStep:
    meta = facts.virtual_cluster.metadata
    kept = [str(ref) for ref in sorted(facts.objects) if ref.kind == "PersistentVolumeClaim"]
    what = f"; {', '.join(kept[:8])} stay, as spec.volumes is Retain" if kept else ""
    return DeletionStep(
        "Deleted",
        f"nothing is left of VirtualCluster {meta.namespace}/{meta.name}{what}",
        is_retained=bool(kept),
        removes_finalizer=True,
    )
