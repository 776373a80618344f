# SPDX-License-Identifier: Apache-2.0
"""Maps a tenant's pod to its super cluster pod, and decides whose a super cluster pod is.

Ownership comes from the annotations that the syncer wrote on the super pod (see `keys`), never from its
name: the join of cluster key
and namespace is ambiguous (tenant `a` + namespace `b-c` is also tenant `a-b` + namespace `c`).
"""

import enum
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tenancy import keys, names
from tenancy.names import Refused


@dataclass(frozen=True, slots=True)
class Owned:
    """One super pod and the tenant pod that it is the body of.

    `containers` are the names a tenant may reach: its own, init and ephemeral ones, never those
    that something in the super cluster injected. `problem` is why only the owner of the pod could be
    decoded, or empty. A pod with a problem exists: it is not missing, and cannot be served.

    `images` are (container, image) of those of `containers` whose image the super pod's spec names, sorted:
    see `known_images`.
    """

    tenant: str
    namespace: str
    name: str
    uid: str
    super_namespace: str
    super_name: str
    super_uid: str
    containers: frozenset[str]
    problem: str = ""
    images: tuple[tuple[str, str], ...] = ()


class NotOwned(enum.Enum):
    """Why the caller gets no pod.

    FOREIGN covers another tenant's pod, a host pod and no pod at all: a caller must not be able to
    distinguish these. UNKNOWN means not synced, or too old: never a refusal.
    """

    FOREIGN = "foreign"
    UNKNOWN = "unknown"


FOREIGN = NotOwned.FOREIGN
UNKNOWN = NotOwned.UNKNOWN

Verdict = Owned | NotOwned


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """Which containers of a super pod are the tenant's, without an annotation for that.

    `injected` are the names of the containers that the super cluster adds to pods.
    `trusts_annotation`: the syncer owns `keys.CONTAINERS`. A syncer that does not know the key would
    pass a tenant's own value through, and so let it name the injected containers.
    """

    injected: frozenset[str] = frozenset()
    trusts_annotation: bool = False


# The characters of an image reference (distribution/reference): a name of up to 255, a tag of 128, and a
# digest of 135 with SHA-512.
_IMAGE = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:/@+\[\]-]{0,519}")
# Of one pod. A pod with 20 containers has 2 KB.
MAX_IMAGES_CHARS = 16 << 10


def known_images(images: Mapping[str, str], allowed: Collection[str]) -> tuple[tuple[str, str], ...]:
    """(container, image) of the `allowed` containers, sorted, up to `MAX_IMAGES_CHARS` together.

    A text that is no image reference is left out: no runtime could pull it.
    """
    found: list[tuple[str, str]] = []
    room = MAX_IMAGES_CHARS
    for container, image in sorted(images.items()):
        if container not in allowed or _IMAGE.fullmatch(image) is None:
            continue
        room -= len(image)
        if room < 0:
            break
        found.append((container, image))
    return tuple(found)


def owned_pod(
    namespace: str,
    name: str,
    uid: str,
    annotations: Mapping[str, str],
    containers: Collection[str],
    policy: ContainerPolicy,
    images: Mapping[str, str] | None = None,
) -> Owned | Refused | None:
    """A super pod's owner; None for the super cluster's own pods, Refused if it cannot be served.

    `containers` are the names of all its containers, init and ephemeral ones included, `images` what its spec
    has as the image of each. A pod with
    none of the three ownership annotations is the super cluster's own. One with some of them was
    written by an unknown program and is refused.
    """
    written = [annotations.get(key) for key in (keys.CLUSTER, keys.NAMESPACE, keys.UID)]
    if written == [None, None, None]:
        return None
    tenant, tenant_namespace, tenant_uid = (value or "" for value in written)
    if not (tenant and tenant_namespace and tenant_uid):
        return Refused("not all of its ownership annotations are set")
    refusal = names.check_key(tenant)
    if refusal is not None:
        return refusal
    if not (names.is_dns_label(tenant_namespace) and names.is_uid(tenant_uid)):
        return Refused("its namespace or uid annotation is not valid")
    if not (names.is_dns_label(namespace) and names.is_pod_name(name) and names.is_uid(uid)):
        return Refused("its own namespace, name or uid is not valid")
    if not all(map(names.is_dns_label, containers)):
        return Refused("the name of a container is not valid")
    allowed = frozenset(containers) - policy.injected
    listed = annotations.get(keys.CONTAINERS)
    if policy.trusts_annotation and listed is not None:
        allowed = frozenset(filter(None, map(str.strip, listed.split(","))))
        if not all(map(names.is_dns_label, allowed)):
            return Refused("its containers annotation is not valid")
        allowed &= frozenset(containers)
    named = known_images(images or {}, allowed)
    return Owned(tenant, tenant_namespace, name, tenant_uid, namespace, name, uid, allowed, images=named)


class OwnerIndex:
    """An immutable snapshot of this node's tenant pods.

    Two super pods that claim the same tenant pod are ambiguous, and so are two tenant pods with one super
    pod's name (the kubelet uses the name). None of them is served, and `ambiguous` lists all, to be logged.
    """

    __slots__ = ("_by_super", "_by_tenant", "_synced", "ambiguous")

    def __init__(self, pods: Iterable[Owned], *, is_synced: bool = True) -> None:
        found = tuple(pods)
        mine = Counter((pod.tenant, pod.namespace, pod.name) for pod in found)
        supers = Counter((pod.super_namespace, pod.super_name) for pod in found)
        self._by_tenant: dict[str, dict[tuple[str, str], Owned]] = {}
        self._by_super: dict[tuple[str, str], Owned] = {}
        ambiguous: list[Owned] = []
        for pod in found:
            super_key = (pod.super_namespace, pod.super_name)
            if mine[pod.tenant, pod.namespace, pod.name] > 1 or supers[super_key] > 1:
                ambiguous.append(pod)
                continue
            self._by_tenant.setdefault(pod.tenant, {})[pod.namespace, pod.name] = pod
            self._by_super[super_key] = pod
        self.ambiguous: tuple[Owned, ...] = tuple(ambiguous)
        self._synced = is_synced

    @classmethod
    def unsynced(cls) -> "OwnerIndex":
        """The index before the first sync: every look-up is UNKNOWN."""
        return cls((), is_synced=False)

    @property
    def is_synced(self) -> bool:
        return self._synced

    def lookup(self, tenant: str, namespace: str, pod: str) -> Verdict:
        """Answer for one tenant's name of a pod: `Owned`, `FOREIGN`, or `UNKNOWN` before the sync."""
        if not self._synced:
            return UNKNOWN
        mine = self._by_tenant.get(tenant)
        if mine is None:
            return FOREIGN
        return mine.get((namespace, pod), FOREIGN)

    def pods_of(self, tenant: str) -> tuple[Owned, ...]:
        """Those that can be served."""
        return tuple(pod for pod in self._by_tenant.get(tenant, {}).values() if not pod.problem)

    def __iter__(self) -> Iterator[Owned]:
        return iter(self._by_super.values())

    def __len__(self) -> int:
        return len(self._by_super)
