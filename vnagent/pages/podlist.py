# SPDX-License-Identifier: Apache-2.0
"""Finds the tenants' pods of a v1 PodList: the kubelet's own `/pods`, or `kubectl get pods -A -o json`.

It decodes only the fields of ownership, so that a request for an unknown name can wait for it.
"""

from collections import Counter
from dataclasses import replace

import msgspec

from daemonkit.kube.object_limits import MAX_OBJECT_BYTES, TOO_LARGE, limits_of
from daemonkit.kube.resources import PODS
from tenancy import keys
from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, Owned, owned_pod
from vnagent.core.list_splitter import Item, TooLarge, complete_members
from vnagent.pages.page import PageError, collect, decode


class _ListedContainer(msgspec.Struct):
    name: str
    image: str = ""


class _ListedSpec(msgspec.Struct, rename="camel"):
    containers: list[_ListedContainer] | None = None
    init_containers: list[_ListedContainer] | None = None
    ephemeral_containers: list[_ListedContainer] | None = None


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _ListedSpec
    # The items of a PodList have no kind of their own, those of kubectl's List have.
    kind: str = "Pod"


class OwnershipAnnotations(msgspec.Struct, frozen=True):
    """The annotations of ownership, also of a pod that is too large to be decoded."""

    cluster: str | None = msgspec.field(name=keys.CLUSTER, default=None)
    namespace: str | None = msgspec.field(name=keys.NAMESPACE, default=None)
    uid: str | None = msgspec.field(name=keys.UID, default=None)

    def mapping(self) -> dict[str, str]:
        written = {keys.CLUSTER: self.cluster, keys.NAMESPACE: self.namespace, keys.UID: self.uid}
        return {key: value for key, value in written.items() if value is not None}


class _LargeMetadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: OwnershipAnnotations | None = None


class _LargePod(msgspec.Struct):
    metadata: _LargeMetadata | None = None
    kind: str = "Pod"


class _ListFrame(msgspec.Struct):
    kind: str


_POD = msgspec.json.Decoder(_Pod)
_LARGE_POD = msgspec.json.Decoder(_LargePod)
_FRAME = msgspec.json.Decoder(_ListFrame)
_LIMITS = limits_of(PODS)
_TOO_MANY_BYTES = f"{TOO_LARGE}it has more than {MAX_OBJECT_BYTES} bytes"

OwnedPods = tuple[tuple[Owned, ...], tuple[str, ...]]
"""The tenants' pods of a list, and the problems of others."""


class OwnedPodsCollector:
    """The tenants' pods in a v1 PodList or kubectl's v1 List of pods, and the problems of others.

    The super cluster's own pods are left out silently. A problem is a tenant's pod that is not served: with
    incomplete annotations, invalid names, or the name of another pod of the list, as the kubelet selects by
    name. A pod that is too large (`daemonkit/kube/object_limits.py`) stays its tenant's and cannot be served.
    """

    def __init__(self, policy: ContainerPolicy) -> None:
        self._policy = policy
        # By namespace and name; of the super cluster's own pods nothing else is kept.
        self._found: list[tuple[tuple[str, str], Owned | Refused | None]] = []
        self._unnamed = 0

    def add(self, item: Item) -> None:
        if isinstance(item, TooLarge):
            self._add_large(complete_members(item.head), _TOO_MANY_BYTES)
            return
        excess = _LIMITS.excess(item)
        if excess is not None:
            self._add_large(item, excess)
            return
        pod = decode(_POD, item)
        _check_kind(pod.kind)
        meta, spec = pod.metadata, pod.spec
        containers = [
            container
            for listed in (spec.containers, spec.init_containers, spec.ephemeral_containers)
            for container in listed or ()
        ]
        found = owned_pod(
            meta.namespace,
            meta.name,
            meta.uid,
            meta.annotations or {},
            [container.name for container in containers],
            self._policy,
            {container.name: container.image for container in containers},
        )
        self._found.append(((meta.namespace, meta.name), found))

    def _add_large(self, item: bytes, problem: str) -> None:
        pod = decode(_LARGE_POD, item)
        _check_kind(pod.kind)
        meta = pod.metadata
        if meta is None:
            # A kubelet writes the metadata first, within the kept head of an item.
            self._unnamed += 1
            return
        annotations = (meta.annotations or OwnershipAnnotations()).mapping()
        found = owned_pod(meta.namespace, meta.name, meta.uid, annotations, (), self._policy)
        if isinstance(found, Owned):
            # It exists: to its tenant it is not missing.
            found = replace(found, problem=problem)
        self._found.append(((meta.namespace, meta.name), found))

    def finish(self, frame: bytes) -> OwnedPods:
        if decode(_FRAME, frame).kind not in ("PodList", "List"):
            raise PageError("not a list of pods")
        named = Counter(key for key, _ in self._found)
        owned: list[Owned] = []
        problems: list[str] = []
        for key, each in self._found:
            found = each
            if isinstance(found, Owned) and named[key] > 1:
                found = Refused("another pod has its name")
            if found is None:
                continue
            if isinstance(found, Owned):
                owned.append(found)
            reason = found.problem if isinstance(found, Owned) else found.reason
            if reason:
                # The names are not validated yet: shown escaped and bounded.
                problems.append(f"pod {'/'.join(key)[:320]!r}: {reason}")
        if self._unnamed:
            problems.append(f"{self._unnamed} pods are too large to read whose they are")
        return tuple(owned), tuple(problems)


def owned_pods(page: bytes, policy: ContainerPolicy) -> OwnedPods:
    """The result of `OwnedPodsCollector` for a complete list. Raises PageError."""
    return collect(page, OwnedPodsCollector(policy))


def _check_kind(kind: str) -> None:
    if kind != "Pod":
        raise PageError("has items that are not Pods")
