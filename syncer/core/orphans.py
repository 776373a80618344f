# SPDX-License-Identifier: Apache-2.0
"""Which super namespaces belong to a VirtualCluster that is gone. Pure.

A super namespace names its VirtualCluster by namespace, name and UID. It is an orphan when none has that UID.
A VirtualCluster keeps its namespaces whatever its phase, and so does one that cannot be decoded. One that was
restored from a backup, or made again, has another UID: it is another tenant, and sees nothing of the first.
What the first has had stays beside it all the same, unless its deletion was seen: its data is there alone.

That a VirtualCluster is gone is *confirmed* if a watch of this process saw its deletion. Else a list merely
lacks it, as one of an empty backup lacks them all. `tenancy.removals` judges that: a list that lacks all
owners, or more than half of them, deletes nothing. Nor does the first patrol after a start. Before a deletion
the caller reads the VirtualCluster once more: `is_gone` judges the answer.
"""

from collections.abc import Collection, Generator, Mapping

import msgspec

from daemonkit.kube.resources import Key
from syncer.core.objects import Object, annotations_of, is_deleting, metadata, name_of, uid_of, version_of
from tenancy import keys, removals
from tenancy.removals import Distrust
from tenancy.super_namespaces import SuperNamespaceOwner, owner_of

# Super namespaces that are judged in one step, of up to 2 us each.
_STEP = 1_000


class ClusterRef(msgspec.Struct, frozen=True):
    """The VirtualCluster that a super namespace names."""

    namespace: str
    name: str
    uid: str

    @property
    def where(self) -> Key:
        return self.namespace, self.name


class OwnedNamespace(msgspec.Struct, frozen=True):
    """A super namespace of a VirtualCluster's tenant; `key` is the cluster key."""

    name: str
    uid: str
    version: str
    key: str
    cluster: ClusterRef


class KnownClusters(msgspec.Struct, frozen=True):
    """All VirtualClusters: the UID of each, and where there are some that cannot be decoded."""

    uids: Mapping[Key, str]
    undecodable: Collection[Key] = ()

    def present_uids(self, clusters: Collection[ClusterRef]) -> frozenset[str]:
        """The UIDs of those that are there."""
        uids = frozenset(self.uids.values())
        return frozenset(each.uid for each in clusters if each.uid in uids or each.where in self.undecodable)


class Orphans(msgspec.Struct, frozen=True):
    """`removable` may be deleted now, `held` wait; of these, `former` are of a VirtualCluster whose name
    another one has now; the distrust that goes on or begins."""

    removable: tuple[OwnedNamespace, ...] = ()
    held: tuple[OwnedNamespace, ...] = ()
    former: tuple[OwnedNamespace, ...] = ()
    distrust: Distrust | None = None


def owned_namespace(value: Object) -> OwnedNamespace | None:
    """A super namespace that was made for a VirtualCluster, or is its root namespace.

    None for all others: the super cluster's own, a directory's tenants', those whose annotations contradict
    each other, those that are being deleted, and root namespaces that vc-operator keeps for their volumes.
    """
    noted = annotations_of(value)
    cluster = ClusterRef(
        *(str(noted.get(each) or "") for each in (keys.VC_NAMESPACE, keys.VC_NAME, keys.VC_UID))
    )
    if not (cluster.namespace and cluster.name and cluster.uid) or is_deleting(value):
        return None
    name = name_of(value)
    if noted.get(keys.VC_ROOT_NAMESPACE) == "true":
        if _is_retained(value):
            return None
        key = name if keys.NAMESPACE not in noted else ""
    else:
        owner = owner_of(name, noted)
        key = owner.key if isinstance(owner, SuperNamespaceOwner) else ""
    return OwnedNamespace(name, uid_of(value), version_of(value), key, cluster) if key else None


def _is_retained(root_namespace: Object) -> bool:
    """Whether vc-operator keeps it. Tenants cannot write it: nothing is synced to a root namespace."""
    labels = metadata(root_namespace).get("labels") or {}
    is_of_operator = labels.get(keys.MANAGED_BY) == keys.OPERATOR
    return is_of_operator and annotations_of(root_namespace).get(keys.RETAINED) == "true"


def evaluate(
    namespaces: Collection[OwnedNamespace],
    known: KnownClusters,
    confirmed: Collection[str],
    before: Distrust | None,
    now_s: float,
    *,
    is_first_patrol: bool,
    needs_confirmation: bool,
) -> Generator[None, None, Orphans]:
    """Judge all super namespaces, in steps.

    `confirmed` are the UIDs of VirtualClusters whose deletion a watch reported. `needs_confirmation`: a list
    deletes nothing, as other VirtualClusters than the listed ones have namespaces here too.
    """
    owners: dict[str, ClusterRef] = {}
    for count, each in enumerate(namespaces, 1):
        owners[each.cluster.uid] = each.cluster
        if count % _STEP == 0:
            yield
    present = known.present_uids(owners.values())
    # A UID is never used again, so one that is there was not deleted.
    deleted = frozenset(confirmed) - present
    judged = removals.evaluate(frozenset(owners), present, deleted, before, now_s)
    removable, held, former = list[OwnedNamespace](), list[OwnedNamespace](), list[OwnedNamespace]()
    for count, each in enumerate(namespaces, 1):
        uid = each.cluster.uid
        if uid not in present:
            has_other = each.cluster.where in known.uids
            is_gone_for_sure = uid in deleted or not (
                needs_confirmation or has_other or uid in judged.retained
            )
            (removable if is_gone_for_sure and not is_first_patrol else held).append(each)
            if has_other and uid not in deleted:
                former.append(each)
        if count % _STEP == 0:
            yield
    return Orphans(tuple(removable), tuple(held), tuple(former), judged.distrust)


def is_gone(
    cluster: ClusterRef, code: int, message: str, found: Object | None, *, is_confirmed: bool
) -> bool:
    """Whether a read of the VirtualCluster shows that it is gone: none of this name is there, or, after a
    deletion that is confirmed, another one.

    A server that does not know VirtualClusters answers 404 as well, without the name.
    """
    if found is not None:
        return is_confirmed and bool(uid_of(found)) and uid_of(found) != cluster.uid
    return code == 404 and f'"{cluster.name}" not found' in message
