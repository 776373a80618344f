# SPDX-License-Identifier: Apache-2.0
"""`/metrics/resource`, `/metrics/cadvisor` and `/metrics/probes` with the rows of one tenant's pods.

A row is kept if its family is listed here, and its parsed namespace and pod labels are those of a super pod
of the tenant. Its pod uid (where it has one) must be that pod's, its container (where it has one) the
tenant's. Its listed labels are kept, with the tenant's own namespace, pod and pod uid; a cadvisor row of a
container also has the image that its pod asks for. The node's rows of
`resource` are replaced by sums over the tenant's pods. The processor time has that of ended pods, too
(`node_cpu`). Scrape errors are the kubelet's: they are about the read that tenants share.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenancy.ownership import Owned
from vnagent.pages.exposition import (
    Comment,
    Sample,
    family_text,
    label_text,
    labels,
    lines,
    number,
    sample_text,
)
from vnagent.pages.node_cpu import MAX_NS, CpuReading, CpuSample, PodKey
from vnagent.pages.page import PROMETHEUS_TEXT, PageError, PageKind, View

_START = "container_start_time_seconds"
_POD_CPU, _NODE_CPU = "pod_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"
_NS_PER_S = 10**9
# metrics-server takes zero for a failure, and leaves out the node (pkg/scraper/client/resource/decode.go).
_LEAST = {_NODE_CPU: "0.000000001", "node_memory_working_set_bytes": "1"}

# The cgroup of a pod ends in its uid, which distinguishes it from an earlier pod of its name:
# .../pod<uid> with the cgroupfs driver, ...-pod<uid with underscores>.slice with systemd's
# (k8s.io/kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go). Other layouts are not used.
_POD_CGROUP = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?![0-9a-zA-Z])")


@dataclass(frozen=True, slots=True)
class Allowed:
    """The rows of a page that tenants may see.

    `families` maps the name of a row to that of its family (they differ in histograms). `node`
    maps a row of the node to the rows of pods that are summed up in its place. `errors` are rows
    that show whether the kubelet's own reading worked. `has_images`: rows of containers have the image of the
    pod's spec, whatever the page's own label is.
    """

    families: Mapping[str, str]
    labels: frozenset[str]
    node: Mapping[str, str] = field(default_factory=dict)
    errors: frozenset[str] = frozenset()
    may_be_empty: bool = False
    has_images: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RowOwner:
    """The pod of a row, and its other labels as they will stand before and after namespace and pod.

    `pod` is the super namespace and name. `uid` is empty where the row has none; it is written only
    where it was a label of its own. `container` is empty for the pod as a whole, and for its sandbox:
    cadvisor gives both the same labels but for the cgroup and runtime ids, which stay here. `whole` is
    the pod as a whole for a sandbox, whose row comes through where the pod has none.
    """

    pod: tuple[str, str]
    uid: str
    is_uid_written: bool
    container: str
    before: str
    after: str
    whole: "RowOwner | None" = None


@dataclass(slots=True)
class RowFamily:
    """The rows of one family: by pod, then by the row's name and labels."""

    name: str
    comments: dict[str, str] = field(default_factory=dict)
    rows: "dict[PodKey, _Rows]" = field(default_factory=dict)
    node: Sample | None = None


Families = dict[str, RowFamily]
_Rows = dict[tuple[str, RowOwner], Sample]


def _parse(page: bytes, allowed: Allowed) -> Families:
    families: Families = {}
    owners = _RowOwners(allowed.labels)
    comments: dict[str, dict[str, str]] = {}
    doubled: list[tuple[_Rows, tuple[str, RowOwner], Sample]] = []
    starts: dict[str, float] = {}
    is_empty = True
    for line in lines(page):
        if isinstance(line, Comment):
            comments.setdefault(line.name, {})[line.word] = line.text
            continue
        is_empty = False
        name = line.name
        if name in allowed.node or name in allowed.errors:
            if not line.block:
                families.setdefault(name, RowFamily(name)).node = line
            continue
        family_name = allowed.families.get(name)
        if family_name is None:
            continue
        who = owners.of(line.block)
        if who is None:
            continue
        family = families.get(family_name)
        if family is None:
            family = families[family_name] = RowFamily(family_name)
        rows = family.rows.setdefault(who.pod, {})
        if rows.setdefault((name, who), line) is not line:
            doubled.append((rows, (name, who), line))
        if name == _START:
            starts[owners.cgroup_of(line.block)] = float(line.value)
    # Without the runtime's ids a container and its dead predecessor can be one row twice, which a scraper
    # refuses: the newest stands.
    for rows, key, line in doubled:
        if owners.age_of(line, starts) > owners.age_of(rows[key], starts):
            rows[key] = line
    if is_empty and not allowed.may_be_empty:
        raise PageError("holds no samples")
    for family in families.values():
        # OpenMetrics has a counter's comments without the suffix.
        family.comments = comments.get(family.name) or comments.get(family.name.removesuffix("_total"), {})
    return families


class _RowOwners:
    """The pods and cgroups of a page's rows, by label block. One value for each distinct pod and labels."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._by_block: dict[str, RowOwner | None] = {}
        self._cgroups: dict[str, str] = {}
        self._known: dict[tuple[object, ...], RowOwner] = {}

    def of(self, block: str) -> RowOwner | None:
        """The pod of a row with this block; None for the node's rows."""
        try:
            return self._by_block[block]
        except KeyError:
            found = labels(block) if block else {}
            who = self._by_block[block] = self._read(found)
            if who is not None and "id" in found:
                self._cgroups[block] = found["id"]
            return who

    def cgroup_of(self, block: str) -> str:
        """The cgroup of a row with this block, which distinguishes a container from its predecessor; empty if
        the row names none."""
        return self._cgroups.get(block, "")

    def age_of(self, row: Sample, starts: Mapping[str, float]) -> tuple[float, int]:
        """What is more for the newer of two rows: the start of the row's cgroup, then the row's time.

        A start comes first: a predecessor may have been read later than its successor.
        """
        return starts.get(self.cgroup_of(row.block), -1.0), int(row.time or 0)

    def _read(self, found: dict[str, str]) -> RowOwner | None:
        namespace, pod = found.get("namespace"), found.get("pod")
        if not namespace or not pod:
            return None
        container = found.get("container", "")
        is_sandbox = "container" in found and not container and bool(found.get("name"))
        uid = found.get("pod_uid", "")
        if not uid and (cgroup := _POD_CGROUP.search(found.get("id", ""))):
            uid = cgroup[1].replace("_", "-")
        kept = sorted((name, value) for name, value in found.items() if name in self._allowed)
        before = label_text(each for each in kept if each[0] < "namespace")
        after = label_text(each for each in kept if each[0] > "namespace")
        fields = (
            (namespace, pod),
            uid,
            "pod_uid" in found,
            container,
            f"{before}," if before else "",
            f",{after}" if after else "",
        )
        who = self._known.setdefault(fields, RowOwner(*fields))
        return self._known.setdefault((*fields, who), RowOwner(*fields, who)) if is_sandbox else who


def _render(families: Families, view: View, allowed: Allowed) -> bytes:
    pods = view.index.pods_of(view.tenant)
    text: list[str] = []
    for family in families.values():
        if family.node is None:
            rows = [row for pod in pods for row in _rows_of(family, pod, has_images=allowed.has_images)]
        elif family.name in allowed.errors or view.has_node_figures:
            rows = [sample_text(family.name, "", family.node.value, family.node.time)]
        elif family.name == _NODE_CPU:
            rows = [_cpu_total(family.node, view.cpu)]
        else:
            rows = [_sum(family.node, families.get(allowed.node[family.name]), pods)]
        if rows:
            text.append(family_text(family.name, family.comments))
            text += rows
    return "".join(text).encode()


def _rows_of_pod(family: RowFamily, pod: Owned) -> Iterable[tuple[str, RowOwner, Sample]]:
    rows = family.rows.get((pod.super_namespace, pod.super_name), {})
    identified: set[tuple[object, ...]] | None = None
    for (name, who), sample in rows.items():
        is_own_container = not who.container or who.container in pod.containers
        is_twice = who.whole is not None and (name, who.whole) in rows
        if not is_own_container or is_twice or who.uid not in ("", pod.super_uid):
            continue
        if not who.uid:
            # A scraper refuses a page with one row twice. So the row that names the pod's uid stands.
            if identified is None:
                identified = {(each, *_written(other)) for each, other in rows if other.uid == pod.super_uid}
            if identified and (name, *_written(who)) in identified:
                continue
        yield name, who, sample


def _written(who: RowOwner) -> tuple[object, ...]:
    """What distinguishes the rows of one pod and name on a tenant's page."""
    return who.before, who.after, who.is_uid_written


def _rows_of(family: RowFamily, pod: Owned, *, has_images: bool) -> Iterable[str]:
    whose = label_text((("namespace", pod.namespace), ("pod", pod.name)))
    imaged = {
        container: f"{label_text((('image', image),))},{whose}"
        for container, image in (pod.images if has_images else ())
    }
    for name, who, sample in _rows_of_pod(family, pod):
        uid = "," + label_text((("pod_uid", pod.uid),)) if who.is_uid_written else ""
        yield sample_text(
            name, f"{who.before}{imaged.get(who.container, whose)}{uid}{who.after}", sample.value, sample.time
        )


def _cpu_total(node: Sample, total: CpuSample | None) -> str:
    """The node's processor time as that of the tenant's pods, in seconds; never zero."""
    if total is None or not total.ns:
        return sample_text(node.name, "", _LEAST[node.name], node.time)
    whole, part = divmod(total.ns, _NS_PER_S)
    seconds = f"{whole}.{part:09d}".rstrip("0").rstrip(".")
    return sample_text(node.name, "", seconds, str(total.at_ms) if total.at_ms > 0 else node.time)


def _sum(node: Sample, family: RowFamily | None, pods: Iterable[Owned]) -> str:
    """The node's row as the sum over `pods`, of the time of the latest of them; without pods, of the time of
    the node's own row."""
    samples = [sample for pod in pods if family is not None for _, _, sample in _rows_of_pod(family, pod)]
    total = sum((float(sample.value) for sample in samples), start=0.0)
    times = [int(sample.time) for sample in samples if sample.time]
    value = _LEAST.get(node.name, "0") if total == 0 else number(total)
    return sample_text(node.name, "", value, str(max(times)) if times else node.time)


def _read_cpu(families: Families) -> CpuReading:
    """The processor times of all pods. One that is no time, or has none, is left out."""
    found: dict[PodKey, CpuSample] = {}
    family = families.get(_POD_CPU)
    for pod, rows in (family.rows if family is not None else {}).items():
        # A pod and its predecessor of one name may both be listed.
        sample = max(rows.values(), key=lambda row: int(row.time or 0))
        seconds = float(sample.value)
        # NaN is not within any bounds.
        if sample.time and 0 < int(sample.time) <= MAX_NS and 0 <= seconds <= MAX_NS / _NS_PER_S:
            found[pod] = CpuSample(round(seconds * _NS_PER_S), int(sample.time))
    node = families.get(_NODE_CPU)
    node_time = node.node.time if node is not None and node.node is not None else ""
    return CpuReading(found, min(max(0, int(node_time or 0)), MAX_NS))


def _page(allowed: Allowed, *, has_cpu: bool = False) -> PageKind[Families]:
    return PageKind(
        PROMETHEUS_TEXT,
        lambda page: _parse(page, allowed),
        lambda families, view: _render(families, view, allowed),
        read_cpu=_read_cpu if has_cpu else None,
    )


def _plain(*names: str) -> dict[str, str]:
    return {name: name for name in names}


RESOURCE = _page(
    Allowed(
        families=_plain(
            "container_cpu_usage_seconds_total",
            "container_memory_working_set_bytes",
            "container_start_time_seconds",
            "container_swap_limit_bytes",
            "container_swap_usage_bytes",
            _POD_CPU,
            "pod_memory_working_set_bytes",
            "pod_swap_usage_bytes",
        ),
        labels=frozenset({"container"}),
        node={
            _NODE_CPU: _POD_CPU,
            "node_memory_working_set_bytes": "pod_memory_working_set_bytes",
            "node_swap_usage_bytes": "pod_swap_usage_bytes",
        },
        errors=frozenset({"scrape_error", "resource_scrape_error"}),
    ),
    has_cpu=True,
)

# Left out on purpose: `id` and `name` (cgroup path with the super uid, runtime id), the page's own `image`
# (of two names of one image, containerd reports either), the sizes of filesystems that pods share
# (container_fs_limit_bytes and the inode counts), custom application metrics, and everything of the machine.
CADVISOR = _page(
    Allowed(
        families=_plain(
            "container_blkio_device_usage_total",
            "container_cpu_cfs_burst_periods_total",
            "container_cpu_cfs_burst_seconds_total",
            "container_cpu_cfs_periods_total",
            "container_cpu_cfs_throttled_periods_total",
            "container_cpu_cfs_throttled_seconds_total",
            "container_cpu_load_average_10s",
            "container_cpu_load_d_average_10s",
            "container_cpu_schedstat_run_periods_total",
            "container_cpu_schedstat_run_seconds_total",
            "container_cpu_schedstat_runqueue_seconds_total",
            "container_cpu_system_seconds_total",
            "container_cpu_usage_seconds_total",
            "container_cpu_user_seconds_total",
            "container_file_descriptors",
            "container_fs_io_current",
            "container_fs_io_time_seconds_total",
            "container_fs_io_time_weighted_seconds_total",
            "container_fs_read_seconds_total",
            "container_fs_reads_bytes_total",
            "container_fs_reads_merged_total",
            "container_fs_reads_total",
            "container_fs_sector_reads_total",
            "container_fs_sector_writes_total",
            "container_fs_usage_bytes",
            "container_fs_write_seconds_total",
            "container_fs_writes_bytes_total",
            "container_fs_writes_merged_total",
            "container_fs_writes_total",
            "container_hugetlb_failcnt",
            "container_hugetlb_max_usage_bytes",
            "container_hugetlb_usage_bytes",
            "container_last_seen",
            "container_memory_cache",
            "container_memory_failcnt",
            "container_memory_failures_total",
            "container_memory_kernel_usage",
            "container_memory_mapped_file",
            "container_memory_max_usage_bytes",
            "container_memory_migrate",
            "container_memory_numa_pages",
            "container_memory_rss",
            "container_memory_swap",
            "container_memory_total_active_file_bytes",
            "container_memory_total_inactive_file_bytes",
            "container_memory_usage_bytes",
            "container_memory_working_set_bytes",
            "container_network_receive_bytes_total",
            "container_network_receive_errors_total",
            "container_network_receive_packets_dropped_total",
            "container_network_receive_packets_total",
            "container_network_tcp6_usage_total",
            "container_network_tcp_usage_total",
            "container_network_transmit_bytes_total",
            "container_network_transmit_errors_total",
            "container_network_transmit_packets_dropped_total",
            "container_network_transmit_packets_total",
            "container_network_udp6_usage_total",
            "container_network_udp_usage_total",
            "container_oom_events_total",
            "container_pressure_cpu_stalled_seconds_total",
            "container_pressure_cpu_waiting_seconds_total",
            "container_pressure_io_stalled_seconds_total",
            "container_pressure_io_waiting_seconds_total",
            "container_pressure_memory_stalled_seconds_total",
            "container_pressure_memory_waiting_seconds_total",
            "container_processes",
            "container_sockets",
            "container_spec_cpu_period",
            "container_spec_cpu_quota",
            "container_spec_cpu_shares",
            "container_spec_memory_limit_bytes",
            "container_spec_memory_reservation_limit_bytes",
            "container_spec_memory_swap_limit_bytes",
            "container_start_time_seconds",
            "container_tasks_state",
            "container_threads",
            "container_threads_max",
            "container_ulimits_soft",
        ),
        labels=frozenset(
            {
                "container",
                "cpu",
                "device",
                "failure_type",
                "interface",
                "major",
                "minor",
                "node",
                "operation",
                "pagesize",
                "scope",
                "state",
                "tcp_state",
                "type",
                "udp_state",
                "ulimit",
            }
        ),
        errors=frozenset({"container_scrape_error"}),
        has_images=True,
    )
)

PROBES = _page(
    Allowed(
        families={
            "prober_probe_total": "prober_probe_total",
            "prober_probe_duration_seconds_bucket": "prober_probe_duration_seconds",
            "prober_probe_duration_seconds_sum": "prober_probe_duration_seconds",
            "prober_probe_duration_seconds_count": "prober_probe_duration_seconds",
        },
        labels=frozenset({"container", "le", "probe_type", "result"}),
        may_be_empty=True,
    )
)
