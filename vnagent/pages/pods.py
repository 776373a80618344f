# SPDX-License-Identifier: Apache-2.0
"""`/pods`: a v1 PodList of the tenant's own pods, built anew from the fields that are listed here.

Fields of a future Kubernetes are left out until they are listed. Left out on purpose:

- labels and annotations: the super pod does not show whether they are the tenant's, the syncer's, or an
  admission webhook's of the super cluster;
- every free text (`message`): the kubelet writes the super namespace and uid into it, as in
  "back-off 10s restarting failed container=app pod=shop_ten-a-web(...)". The `reason` words stay;
- environment, volumes, mounts, service account, host addresses, owners, the runtime's names of images;
- conditions other than Kubernetes' own: readiness gates may be the super cluster's.
"""

import re
from collections.abc import Mapping

import msgspec

from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import PODS as PODS_RESOURCE
from tenancy.ownership import Owned
from vnagent.core.list_splitter import Item, TooLarge
from vnagent.pages.page import JSON, PageError, PageKind, View, collect, decode, encode

_CONTAINER_ID = re.compile(r"(?:containerd|cri-o|docker)://[0-9a-f]{64}")
_CONDITIONS = frozenset(
    {
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
        "DisruptionTarget",
        "PodResizePending",
        "PodResizeInProgress",
    }
)


class _PodStruct(msgspec.Struct, rename="camel", omit_defaults=True):
    """Fields by their Kubernetes names; unset ones are not written."""


class Port(_PodStruct):
    container_port: int
    name: str | None = None
    protocol: str | None = None


class Resources(_PodStruct):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class PodContainer(_PodStruct):
    name: str
    image: str | None = None
    ports: list[Port] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    stdin: bool | None = None
    stdin_once: bool | None = None
    tty: bool | None = None
    image_pull_policy: str | None = None


class PodSpec(_PodStruct):
    init_containers: list[PodContainer] | None = None
    containers: list[PodContainer] | None = None
    ephemeral_containers: list[PodContainer] | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_name: str | None = None


class Waiting(_PodStruct):
    reason: str | None = None


class RunningState(_PodStruct):
    started_at: str | None = None


class Terminated(_PodStruct):
    exit_code: int
    signal: int | None = None
    reason: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_PodStruct):
    waiting: Waiting | None = None
    running: RunningState | None = None
    terminated: Terminated | None = None


class ContainerStatus(_PodStruct, omit_defaults=False):
    """The API requires all of these but the last two. `image_id` is written empty, `image` as the spec has
    it: the runtime's may be another tenant's name of the same image (containerd reports the first tag)."""

    name: str
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="containerID")
    started: bool | msgspec.UnsetType = msgspec.UNSET


class Condition(_PodStruct):
    type: str
    status: str
    observed_generation: int | None = None
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str | None = None


class IpAddress(_PodStruct):
    ip: str


class PodStatus(_PodStruct):
    observed_generation: int | None = None
    phase: str | None = None
    conditions: list[Condition] | None = None
    reason: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: list[IpAddress] | None = msgspec.field(default=None, name="podIPs")
    start_time: str | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    qos_class: str | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodMetadata(_PodStruct):
    name: str
    namespace: str
    uid: str
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class ServedPod(_PodStruct):
    metadata: PodMetadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class _PodListFrame(msgspec.Struct):
    kind: str


class _Rebuilt(msgspec.Struct, rename="camel"):
    items: list[ServedPod]
    kind: str = "PodList"
    api_version: str = "v1"
    metadata: dict[str, str] = {}


Pods = dict[tuple[str, str, str], ServedPod]
"""Pods by their super namespace, name and uid."""

_POD = msgspec.json.Decoder(ServedPod)
_FRAME = msgspec.json.Decoder(_PodListFrame)
_LIMITS = limits_of(PODS_RESOURCE)

# As JSON, of the fields above. A pod with 20 containers has 20 KB. Decoded, it takes five times as much
# memory: 110 pods of this size are 70 MiB.
MAX_POD_BYTES = 128 << 10


class PodsCollector:
    """The pods of the kubelet's `/pods`. One that is too large to be kept is left out."""

    def __init__(self) -> None:
        self._pods: Pods = {}

    def add(self, item: Item) -> None:
        if isinstance(item, TooLarge) or _LIMITS.excess(item) is not None:
            return
        pod = decode(_POD, item)
        if len(item) > MAX_POD_BYTES and len(encode(pod)) > MAX_POD_BYTES:
            return
        meta = pod.metadata
        self._pods[meta.namespace, meta.name, meta.uid] = pod

    def finish(self, frame: bytes) -> Pods:
        if decode(_FRAME, frame).kind != "PodList":
            raise PageError("not a PodList")
        return self._pods


def parse(page: bytes) -> Pods:
    """Read the kubelet's `/pods`. Raises PageError."""
    return collect(page, PodsCollector())


def render(pods: Pods, view: View) -> bytes:
    """The PodList of the tenant's pods, in its own names and uids, as JSON."""
    return encode(
        _Rebuilt(
            [
                _translated(pod, owned)
                for owned in view.index.pods_of(view.tenant)
                if (pod := pods.get((owned.super_namespace, owned.super_name, owned.super_uid)))
            ]
        )
    )


def _translated(pod: ServedPod, owned: Owned) -> ServedPod:
    """A super pod with its tenant's names and the tenant's containers only."""
    replace, mine = msgspec.structs.replace, owned.containers
    listed = (pod.spec.containers, pod.spec.init_containers, pod.spec.ephemeral_containers)
    images = {each.name: each.image or "" for containers in listed for each in containers or ()}
    return ServedPod(
        replace(pod.metadata, name=owned.name, namespace=owned.namespace, uid=owned.uid),
        replace(
            pod.spec,
            init_containers=_of(pod.spec.init_containers, mine),
            containers=_of(pod.spec.containers, mine),
            ephemeral_containers=_of(pod.spec.ephemeral_containers, mine),
        ),
        replace(
            pod.status,
            conditions=_conditions(pod.status.conditions),
            init_container_statuses=_statuses(pod.status.init_container_statuses, mine, images),
            container_statuses=_statuses(pod.status.container_statuses, mine, images),
            ephemeral_container_statuses=_statuses(pod.status.ephemeral_container_statuses, mine, images),
        ),
    )


def _of(listed: list[PodContainer] | None, mine: frozenset[str]) -> list[PodContainer] | None:
    return None if listed is None else [each for each in listed if each.name in mine]


def _statuses(
    listed: list[ContainerStatus] | None, mine: frozenset[str], images: Mapping[str, str]
) -> list[ContainerStatus] | None:
    if listed is None:
        return None
    return [
        msgspec.structs.replace(
            each, image_id="", image=images.get(each.name, ""), container_id=_own_id(each.container_id)
        )
        for each in listed
        if each.name in mine
    ]


def _own_id(container_id: str | msgspec.UnsetType) -> str | msgspec.UnsetType:
    """The id of a container of the tenant's: random, and of use at the node's own runtime alone.
    OpenTelemetry's kubeletstats receiver has it as `container.id`. Another form is left out."""
    is_id = isinstance(container_id, str) and _CONTAINER_ID.fullmatch(container_id)
    return container_id if is_id else msgspec.UNSET


def _conditions(listed: list[Condition] | None) -> list[Condition] | None:
    return None if listed is None else [each for each in listed if each.type in _CONDITIONS]


PODS = PageKind(JSON, parse, render, PodsCollector)
