# SPDX-License-Identifier: Apache-2.0
"""`/runningpods/`: a v1 PodList of the tenant's pods and containers that the container runtime runs.

The kubelet makes it from the runtime, so it has names and ids only. The names of pods and
containers are kept; the page's image is the runtime's id and is left out.
"""

import msgspec

from vnagent.pages.page import JSON, PageError, PageKind, View, decode, encode


class RunningContainer(msgspec.Struct):
    name: str


class RunningPodMetadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class RunningPodSpec(msgspec.Struct):
    containers: list[RunningContainer] | None = None


class RunningPod(msgspec.Struct):
    metadata: RunningPodMetadata
    spec: RunningPodSpec
    status: dict[str, str] = {}


class _Item(msgspec.Struct):
    metadata: RunningPodMetadata
    spec: RunningPodSpec


class _PodList(msgspec.Struct):
    kind: str
    items: list[_Item] | None = None


class _Rebuilt(msgspec.Struct, rename="camel"):
    items: list[RunningPod]
    kind: str = "PodList"
    api_version: str = "v1"
    metadata: dict[str, str] = {}


Running = dict[tuple[str, str, str], list[RunningContainer]]
"""The running containers of pods, by their super namespace, name and uid."""

_DECODER = msgspec.json.Decoder(_PodList)


def parse(page: bytes) -> Running:
    """Read the kubelet's `/runningpods/`. Raises PageError."""
    document = decode(_DECODER, page)
    if document.kind != "PodList":
        raise PageError("not a PodList")
    return {
        (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid): pod.spec.containers or []
        for pod in document.items or ()
    }


def render(running: Running, view: View) -> bytes:
    """The PodList of the pods that are the tenant's, in its own names and uids, as JSON."""
    pods = []
    for owned in view.index.pods_of(view.tenant):
        containers = running.get((owned.super_namespace, owned.super_name, owned.super_uid))
        if containers is not None:
            mine = [container for container in containers if container.name in owned.containers]
            pods.append(
                RunningPod(RunningPodMetadata(owned.name, owned.namespace, owned.uid), RunningPodSpec(mine))
            )
    return encode(_Rebuilt(pods))


RUNNING_PODS = PageKind(JSON, parse, render)
