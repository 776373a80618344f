# SPDX-License-Identifier: Apache-2.0
"""`/stats/summary`: a stats/v1alpha1 Summary of the tenant's own pods, from the fields named here.

The node's section is the sum of the tenant's own pods, so that `kubectl top
node` works and a neighbour's load stays hidden. For the same reason the
sizes of filesystems that pods share (root filesystems, logs, ephemeral storage, volumes without a
claim) are left out; a pod's usage of them stays. A pod's totals include the containers that the super
cluster injected.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tenancy.ownership import Owned
from vnagent.pages.node_cpu import MAX_NS, CpuReading, CpuSample, PodKey
from vnagent.pages.page import JSON, PageKind, View, decode, encode


class _StatsStruct(msgspec.Struct, rename="camel", omit_defaults=True):
    """Fields by the names of the API; unset ones are not written."""


class Pressure(_StatsStruct):
    total: int
    avg10: float
    avg60: float
    avg300: float


class PressureStats(_StatsStruct):
    full: Pressure | None = None
    some: Pressure | None = None


class Cpu(_StatsStruct):
    time: str | None = None
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None
    psi: PressureStats | None = None


class Memory(_StatsStruct):
    time: str | None = None
    available_bytes: int | None = None
    usage_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    psi: PressureStats | None = None


class Io(_StatsStruct):
    time: str | None = None
    psi: PressureStats | None = None


class Swap(_StatsStruct):
    time: str | None = None
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None


class Interface(_StatsStruct):
    name: str = ""
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None


class Network(Interface):
    """The default interface's counters, beside those of each."""

    time: str | None = None
    interfaces: list[Interface] | None = None


class Filesystem(_StatsStruct):
    """This pod's usage of a shared filesystem."""

    time: str | None = None
    used_bytes: int | None = None
    inodes_used: int | None = None


class Claim(_StatsStruct):
    name: str
    namespace: str


class Volume(_StatsStruct):
    time: str | None = None
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    name: str | None = None
    pvc_ref: Claim | None = None


class Processes(msgspec.Struct, omit_defaults=True):
    process_count: int | None = None


class ContainerStats(_StatsStruct):
    name: str
    start_time: str | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    rootfs: Filesystem | None = None
    logs: Filesystem | None = None
    swap: Swap | None = None


class PodRef(_StatsStruct):
    name: str
    namespace: str
    uid: str


class PodStats(_StatsStruct):
    pod_ref: PodRef
    start_time: str | None = None
    containers: list[ContainerStats] | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    network: Network | None = None
    volume: list[Volume] | None = None
    ephemeral_storage: Filesystem | None = msgspec.field(default=None, name="ephemeral-storage")
    process_stats: Processes | None = msgspec.field(default=None, name="process_stats")
    swap: Swap | None = None


class NodeStats(_StatsStruct):
    """The node's own figures, or the sums over a tenant's pods."""

    node_name: str
    start_time: str | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    swap: Swap | None = None


class _Summary(msgspec.Struct):
    node: NodeStats
    pods: list[PodStats] | None = None


class Summary(msgspec.Struct):
    """A reading: the node, and the pods by their super namespace, name and uid."""

    node: NodeStats
    pods: dict[tuple[str, str, str], PodStats]


MAX_UINT64 = (1 << 64) - 1

_DECODER = msgspec.json.Decoder(_Summary)


def parse(page: bytes) -> Summary:
    """Read the kubelet's `/stats/summary`. Raises PageError."""
    document = decode(_DECODER, page)
    return Summary(
        document.node,
        {(pod.pod_ref.namespace, pod.pod_ref.name, pod.pod_ref.uid): pod for pod in document.pods or ()},
    )


def render(summary: Summary, view: View) -> bytes:
    """The Summary of the pods that are the tenant's, in its own names and uids, as JSON."""
    pods = _pods_of(summary, view)
    return encode(_Summary(_node_of(summary.node, pods, view), pods))


def render_only_cpu_and_memory(summary: Summary, view: View) -> bytes:
    """As `render`, for a caller that asked with `only_cpu_and_memory=true`."""
    pods = [
        PodStats(
            pod.pod_ref,
            pod.start_time,
            [
                ContainerStats(each.name, each.start_time, each.cpu, each.memory, swap=each.swap)
                for each in pod.containers or ()
            ],
            pod.cpu,
            pod.memory,
            swap=pod.swap,
        )
        for pod in _pods_of(summary, view)
    ]
    return encode(_Summary(_node_of(summary.node, pods, view), pods))


def read_cpu(summary: Summary) -> CpuReading:
    """The processor times of all pods. A pod without one, or without a time, is left out."""
    found: dict[PodKey, CpuSample] = {}
    for (namespace, name, _), pod in summary.pods.items():
        sample = _sample(pod.cpu)
        # A pod and its predecessor may both be listed.
        if sample is not None and sample.at_ms >= found.get((namespace, name), sample).at_ms:
            found[namespace, name] = sample
    node = summary.node.cpu
    return CpuReading(found, (_milliseconds(node.time) if node is not None else None) or 0)


def _sample(cpu: Cpu | None) -> CpuSample | None:
    at_ms = None if cpu is None else _milliseconds(cpu.time)
    ns = None if cpu is None else cpu.usage_core_nano_seconds
    if at_ms is None or at_ms <= 0 or ns is None or not 0 <= ns <= MAX_NS:
        return None
    return CpuSample(ns, at_ms)


def _milliseconds(text: str | None) -> int | None:
    """RFC 3339, as metav1.Time writes it; None for another text."""
    try:
        time = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return None if time is None or time.tzinfo is None else int(time.timestamp() * 1000)


def _time(at_ms: int) -> str | None:
    """As metav1.Time writes it; None before any time is known."""
    if at_ms <= 0:
        return None
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pods_of(summary: Summary, view: View) -> list[PodStats]:
    return [
        _translated(pod, owned)
        for owned in view.index.pods_of(view.tenant)
        if (pod := summary.pods.get((owned.super_namespace, owned.super_name, owned.super_uid)))
    ]


def _translated(pod: PodStats, owned: Owned) -> PodStats:
    # A container and its dead predecessor may both be listed: the newest stands, as clients take the last.
    newest: dict[str, ContainerStats] = {}
    for each in pod.containers or ():
        held = newest.get(each.name, each)
        if each.name in owned.containers and (each.start_time or "") >= (held.start_time or ""):
            newest[each.name] = each
    containers = list(newest.values())
    return msgspec.structs.replace(
        pod,
        pod_ref=PodRef(owned.name, owned.namespace, owned.uid),
        containers=containers,
        volume=None if pod.volume is None else [_volume(each, owned) for each in pod.volume],
    )


def _volume(volume: Volume, owned: Owned) -> Volume:
    """A volume with its claim in the tenant's namespace, or the usage of a shared filesystem.

    A claim is always of the pod's own namespace; any other is left out.
    """
    claim = volume.pvc_ref
    if claim is not None and claim.namespace == owned.super_namespace:
        return msgspec.structs.replace(volume, pvc_ref=Claim(claim.name, owned.namespace))
    return Volume(
        time=volume.time, used_bytes=volume.used_bytes, inodes_used=volume.inodes_used, name=volume.name
    )


def _node_of(node: NodeStats, pods: list[PodStats], view: View) -> NodeStats:
    """The node's section as the sum of `pods`, measured when the latest of them was. The processor time has
    that of ended pods, too.

    Without pods the sums are zero, and the time is that of the node's own measurement.
    """
    if view.has_node_figures:
        return node
    cpus = [pod.cpu for pod in pods if pod.cpu is not None]
    memories = [pod.memory for pod in pods if pod.memory is not None]
    total = view.cpu or CpuSample(0, 0)
    return NodeStats(
        node.node_name,
        min((pod.start_time for pod in pods if pod.start_time), default=node.start_time),
        Cpu(
            _time(total.at_ms) or (node.cpu.time if node.cpu else None),
            _sum(cpu.usage_nano_cores for cpu in cpus),
            min(total.ns, MAX_NS),
        ),
        Memory(
            _latest((memory.time for memory in memories), node.memory.time if node.memory else None),
            usage_bytes=_sum(memory.usage_bytes for memory in memories),
            working_set_bytes=_sum(memory.working_set_bytes for memory in memories),
            rss_bytes=_sum(memory.rss_bytes for memory in memories),
        ),
        swap=_swap_of(node, pods),
    )


def _swap_of(node: NodeStats, pods: list[PodStats]) -> Swap | None:
    """The sum over pods, on a node with swap. What is available is the node's."""
    swaps = [pod.swap for pod in pods if pod.swap is not None]
    if node.swap is None and not swaps:
        return None
    return Swap(
        _latest((swap.time for swap in swaps), node.swap.time if node.swap else None),
        swap_usage_bytes=_sum(swap.swap_usage_bytes for swap in swaps),
    )


def _sum(values: Iterable[int | None]) -> int:
    """The API's numbers are uint64: a reader refuses the whole summary for a larger one."""
    return min(sum(value or 0 for value in values), MAX_UINT64)


def _latest(times: Iterable[str | None], otherwise: str | None) -> str | None:
    """RFC 3339 in UTC to the second, as the API writes it, sorts as text."""
    return max(filter(None, times), default=otherwise)


SUMMARY = PageKind(JSON, parse, render, read_cpu=read_cpu)
SUMMARY_ONLY_CPU_AND_MEMORY = PageKind(JSON, parse, render_only_cpu_and_memory, read_cpu=read_cpu)
