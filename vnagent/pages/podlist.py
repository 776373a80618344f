# SPDX-License-Identifier: Apache-2.0
"""Whose the pods of a v1 PodList are: the kubelet's own `/pods`, or `kubectl get pods -A -o json`.

Only the few fields that decide it are decoded, which is what makes this fast enough to be asked for
on every name that is not known yet.
"""

from collections import Counter

import msgspec

from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, Owned, owned_pod
from vnagent.pages.page import PageError, decode


class _Container(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    # The items of a PodList have no kind of their own, those of kubectl's List have.
    kind: str = "Pod"


class _PodList(msgspec.Struct):
    kind: str
    items: list[_Pod] | None = None


_DECODER = msgspec.json.Decoder(_PodList)


def owned_pods(page: bytes, policy: ContainerPolicy) -> tuple[tuple[Owned, ...], tuple[str, ...]]:
    """The tenants' pods in a v1 PodList or kubectl's v1 List of pods, and what is wrong with others.

    The super cluster's own pods are left out without a word. A problem is a pod that should be
    somebody's but is not served: half annotated, of invalid names, or sharing its name with another
    pod of the list, be that whoever's: the kubelet goes by the name. Raises PageError.
    """
    document = decode(_DECODER, page)
    if document.kind not in ("PodList", "List"):
        raise PageError("not a list of pods")
    pods = document.items or []
    if any(pod.kind != "Pod" for pod in pods):
        raise PageError("holds objects that are no pods")
    named = Counter((pod.metadata.namespace, pod.metadata.name) for pod in pods)
    owned: list[Owned] = []
    problems: list[str] = []
    for pod in pods:
        meta, spec = pod.metadata, pod.spec
        found = owned_pod(
            meta.namespace,
            meta.name,
            meta.uid,
            meta.annotations or {},
            [
                container.name
                for containers in (spec.containers, spec.init_containers, spec.ephemeral_containers)
                for container in containers or ()
            ],
            policy,
        )
        if isinstance(found, Owned) and named[meta.namespace, meta.name] > 1:
            found = Refused("another pod has its name")
        if isinstance(found, Owned):
            owned.append(found)
        elif found is not None:
            # The names are not validated yet: shown escaped and bounded.
            problems.append(f"pod {f'{meta.namespace}/{meta.name}'[:320]!r}: {found.reason}")
    return tuple(owned), tuple(problems)
