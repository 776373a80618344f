# SPDX-License-Identifier: Apache-2.0
"""What a fake kubelet runs, and the pages that a kubelet makes of it.

Everything that a page of a real kubelet holds beside the tenant's own rows is here too: other
tenants' and the host's pods, injected containers, environment, volumes, cgroup paths, the
machine's identity. `FakePod.marker` is planted wherever a value of the pod appears, so that a
test can tell whose byte it has received.
"""

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

STARTED_AT = "2026-01-02T03:04:05Z"
READ_AT = "2026-01-02T04:05:06Z"
_READ_AT_MS = 1767326706000
_STARTED_AT_S = 1767323045
MACHINE_ID = "marker-machine-4f1c"


class FakePodState(enum.Enum):
    """The phase of a pod, as far as it changes the kubelet's answers."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class FakePod:
    """One pod, in the super cluster's names. `injected` containers are not the owner's.

    The log of a container begins with a line that names it, unless the pod `is_quiet`.
    """

    namespace: str
    name: str
    uid: str
    containers: tuple[str, ...] = ("app",)
    init: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    state: FakePodState = FakePodState.RUNNING
    is_quiet: bool = False

    @property
    def marker(self) -> str:
        """A word that only this pod's content has."""
        return f"marker-{self.uid}"

    @property
    def every_container(self) -> tuple[str, ...]:
        return (*self.containers, *self.injected, *self.init, *self.ephemeral)

    @property
    def running_containers(self) -> tuple[str, ...]:
        return (*self.containers, *self.injected, *self.ephemeral)


def pod_list(pods: Iterable[FakePod]) -> dict[str, Any]:
    """A v1 PodList as the kubelet's `/pods` answers it."""
    return _list(_pod(pod, number) for number, pod in enumerate(pods))


def running_pod_list(pods: Iterable[FakePod]) -> dict[str, Any]:
    """A v1 PodList as `/runningpods/` answers it: what the runtime knows and nothing else."""
    return _list(
        {
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
                "creationTimestamp": None,
            },
            "spec": {
                "containers": [
                    {"name": name, "image": f"sha256:{pod.marker}-{name}", "resources": {}}
                    for name in pod.running_containers
                ]
            },
            "status": {},
        }
        for pod in pods
    )


def summary(pods: Iterable[FakePod], node_name: str) -> dict[str, Any]:
    """A stats/v1alpha1 Summary with every part that a node has."""
    usage = {"time": READ_AT, "usageNanoCores": 3_000_000, "usageCoreNanoSeconds": 9_000_000_000}
    return {
        "node": {
            "nodeName": node_name,
            "systemContainers": [
                {"name": "kubelet", "startTime": STARTED_AT, "cpu": usage, "memory": _memory(64)},
                {"name": MACHINE_ID, "startTime": STARTED_AT, "cpu": usage, "memory": _memory(32)},
            ],
            "startTime": STARTED_AT,
            "cpu": usage | {"usageNanoCores": 987_654_321},
            "memory": _memory(4096),
            "network": {"time": READ_AT, **_interface("eth0"), "interfaces": [_interface("eth0")]},
            "fs": _filesystem(500_000),
            "runtime": {"imageFs": _filesystem(400_000), "containerFs": _filesystem(300_000)},
            "rlimit": {"time": READ_AT, "maxpid": 4_194_304, "curproc": 1234},
            "swap": {"time": READ_AT, "swapUsageBytes": 0},
        },
        "pods": [_pod_stats(pod, number) for number, pod in enumerate(pods)],
    }


def resource_page(pods: Iterable[FakePod]) -> str:
    """`/metrics/resource`: explicit timestamps, node rows first (KEP 727)."""
    known = list(pods)
    rows = _MetricsPage()
    rows.family("node_cpu_usage_seconds_total", "counter")
    rows.row("node_cpu_usage_seconds_total", {}, 987654.5, _READ_AT_MS)
    rows.family("node_memory_working_set_bytes", "gauge")
    rows.row("node_memory_working_set_bytes", {}, 4.294967296e9, _READ_AT_MS)
    for name, kind, value in (
        ("container_cpu_usage_seconds_total", "counter", 9.25),
        ("container_memory_working_set_bytes", "gauge", 8388608.0),
        ("container_start_time_seconds", "gauge", float(_STARTED_AT_S)),
        ("container_swap_usage_bytes", "gauge", 0.0),
    ):
        rows.family(name, kind)
        for pod in known:
            for container in pod.running_containers:
                labels = {"container": container, "namespace": pod.namespace, "pod": pod.name}
                rows.row(name, labels, value, _READ_AT_MS)
    for name, kind, value in (
        ("pod_cpu_usage_seconds_total", "counter", 10.5),
        ("pod_memory_working_set_bytes", "gauge", 9437184.0),
        ("pod_swap_usage_bytes", "gauge", 0.0),
    ):
        rows.family(name, kind)
        for pod in known:
            rows.row(name, {"namespace": pod.namespace, "pod": pod.name}, value, _READ_AT_MS)
    rows.family("resource_scrape_error", "gauge")
    rows.row("resource_scrape_error", {}, 0)
    return rows.text()


def cadvisor_page(pods: Iterable[FakePod]) -> str:
    """`/metrics/cadvisor`: cgroup paths, runtime names, the machine's identity, host rows."""
    known = list(pods)
    rows = _MetricsPage()
    rows.family("cadvisor_version_info", "gauge")
    rows.row("cadvisor_version_info", {"kernelVersion": MACHINE_ID, "osVersion": "Debian"}, 1)
    rows.family("machine_cpu_cores", "gauge")
    machine = {"machine_id": MACHINE_ID, "boot_id": MACHINE_ID, "system_uuid": MACHINE_ID}
    rows.row("machine_cpu_cores", machine, 2)
    for name, kind in (
        ("container_cpu_usage_seconds_total", "counter"),
        ("container_memory_rss", "gauge"),
        ("container_memory_working_set_bytes", "gauge"),
        ("container_network_receive_bytes_total", "counter"),
    ):
        rows.family(name, kind)
        is_network = "network" in name
        extra = {"interface": "eth0"} if is_network else {}
        for slice_id in ("/", "/system.slice/kubelet.service"):
            host = {"container": "", "id": slice_id, "image": "", "name": "", "namespace": ""}
            rows.row(name, host | {"pod": ""} | extra, 4242, _READ_AT_MS)
        for pod in known:
            for container in ("",) if is_network else ("", *pod.running_containers):
                labels = {
                    "container": container,
                    "id": f"/kubepods/burstable/pod{pod.uid}/{pod.marker}-{container}",
                    "image": f"registry.example/{pod.name}:1" if container else "",
                    "name": f"{pod.marker}-{container}",
                    "namespace": pod.namespace,
                    "pod": pod.name,
                }
                rows.row(name, labels | extra, 1234567, _READ_AT_MS)
    return rows.text()


def probes_page(pods: Iterable[FakePod]) -> str:
    """`/metrics/probes`: one counter per probe and result."""
    rows = _MetricsPage()
    rows.family("prober_probe_total", "counter")
    for pod in pods:
        for container in (*pod.containers, *pod.injected):
            labels = {
                "container": container,
                "namespace": pod.namespace,
                "pod": pod.name,
                "pod_uid": pod.uid,
                "probe_type": "Readiness",
                "result": "successful",
            }
            rows.row("prober_probe_total", labels, 17)
    return rows.text()


def _list(items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(items)}


def _container(pod: FakePod, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example/{pod.name}:1",
        "env": [{"name": "PASSWORD", "value": f"{pod.marker}-{name}"}],
        "resources": {},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token"}],
        "imagePullPolicy": "IfNotPresent",
    }


def _status(pod: FakePod, name: str, *, is_init: bool = False) -> dict[str, Any]:
    running = {"running": {"startedAt": STARTED_AT}}
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": STARTED_AT}}
    return {
        "name": name,
        "state": done if is_init else running,
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example/{pod.name}:1",
        "imageID": f"sha256:{pod.marker}",
        "containerID": f"containerd://{pod.marker}-{name}",
        "started": not is_init,
    }


def _pod(pod: FakePod, number: int) -> dict[str, Any]:
    volumes = [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}]
    spec: dict[str, Any] = {
        "volumes": volumes,
        "containers": [_container(pod, name) for name in (*pod.containers, *pod.injected)],
        "restartPolicy": "Always",
        "serviceAccountName": f"{pod.marker}-account",
        "nodeName": "node-1",
    }
    status: dict[str, Any] = {
        "phase": "Running",
        "hostIP": "192.0.2.1",
        "podIP": f"10.244.0.{number + 10}",
        "podIPs": [{"ip": f"10.244.0.{number + 10}"}],
        "startTime": STARTED_AT,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STARTED_AT}],
        "containerStatuses": [_status(pod, name) for name in (*pod.containers, *pod.injected)],
        "qosClass": "BestEffort",
    }
    if pod.init:
        spec["initContainers"] = [_container(pod, name) for name in pod.init]
        status["initContainerStatuses"] = [_status(pod, n, is_init=True) for n in pod.init]
    if pod.ephemeral:
        spec["ephemeralContainers"] = [_container(pod, name) for name in pod.ephemeral]
        status["ephemeralContainerStatuses"] = [_status(pod, n) for n in pod.ephemeral]
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": "1",
            "creationTimestamp": STARTED_AT,
            "labels": {"app": pod.name, **pod.labels},
            "annotations": {"kubernetes.io/config.source": "api", **pod.annotations},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": pod.marker, "uid": "o-1"}
            ],
        },
        "spec": spec,
        "status": status,
    }


def _memory(mebibytes: int) -> dict[str, Any]:
    size = mebibytes * 1024 * 1024
    return {
        "time": READ_AT,
        "availableBytes": size * 2,
        "usageBytes": size,
        "workingSetBytes": size,
        "rssBytes": size // 2,
        "pageFaults": 12,
        "majorPageFaults": 0,
    }


def _interface(name: str) -> dict[str, Any]:
    return {"name": name, "rxBytes": 1000, "rxErrors": 0, "txBytes": 2000, "txErrors": 0}


def _filesystem(used: int) -> dict[str, Any]:
    return {
        "time": READ_AT,
        "availableBytes": used * 10,
        "capacityBytes": used * 11,
        "usedBytes": used,
        "inodesFree": 1000,
        "inodes": 2000,
        "inodesUsed": 1000,
    }


def _pod_stats(pod: FakePod, number: int) -> dict[str, Any]:
    usage = {"time": READ_AT, "usageNanoCores": 1_000_000 + number, "usageCoreNanoSeconds": 10**9}
    return {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": STARTED_AT,
        "containers": [
            {
                "name": name,
                "startTime": STARTED_AT,
                "cpu": usage,
                "memory": _memory(8),
                "rootfs": _filesystem(4096),
                "logs": _filesystem(128),
                "swap": {"time": READ_AT, "swapUsageBytes": 0},
            }
            for name in pod.running_containers
        ],
        "cpu": usage,
        "memory": _memory(9),
        "network": {"time": READ_AT, **_interface("eth0"), "interfaces": [_interface("eth0")]},
        "volume": [
            {
                **_filesystem(77),
                "name": "data",
                "pvcRef": {"name": f"{pod.name}-data", "namespace": pod.namespace},
            }
        ],
        "ephemeral-storage": _filesystem(4224),
        "process_stats": {"process_count": 3},
        "swap": {"time": READ_AT, "swapUsageBytes": 0},
        "futureField": {"value": pod.marker},
    }


class _MetricsPage:
    """Rows in the Prometheus text format, version 0.0.4."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str) -> None:
        self._lines += [f"# HELP {name} [STABLE] {name}", f"# TYPE {name} {kind}"]

    def row(self, name: str, labels: Mapping[str, str], value: float, at_ms: int | None = None) -> None:
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        stamp = "" if at_ms is None else f" {at_ms}"
        self._lines.append(f"{name}{{{inner}}} {value:g}{stamp}" if inner else f"{name} {value:g}{stamp}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def names_pods(path: str) -> bool:
    """Whether the page at `path` names the node's pods."""
    page = page_for(path, [FakePod("default", "named-pod", "uid")], "node-1")
    return page is not None and b"named-pod" in page[1]


def page_for(path: str, pods: Iterable[FakePod], node_name: str) -> tuple[str, bytes] | None:
    """The content type and body of the page at `path`, or None where a kubelet has none."""
    known = tuple(pods)
    prometheus = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
    match path:
        case "/pods" | "/pods/":
            return "application/json", _json(pod_list(known))
        case "/runningpods" | "/runningpods/":
            return "application/json", _json(running_pod_list(known))
        case "/stats/summary":
            return "application/json", _json(summary(known, node_name))
        case "/metrics/resource":
            return prometheus, resource_page(known).encode()
        case "/metrics/cadvisor":
            return prometheus, cadvisor_page(known).encode()
        case "/metrics/probes":
            return prometheus, probes_page(known).encode()
        case "/metrics":
            return prometheus, (_OWN_ROWS + "".join(_volume_rows(known))).encode()
        case "/configz":
            config = {"staticPodURL": MACHINE_ID, "enableDebuggingHandlers": True}
            return "application/json", _json({"kubeletconfig": config})
        case "/healthz":
            return "text/plain; charset=utf-8", b"ok"
    if path.startswith(("/logs", "/debug", "/statusz", "/flagz", "/spec", "/run", "/checkpoint")):
        return "text/plain; charset=utf-8", f"{MACHINE_ID}\n".encode()
    return None


# As a kubelet of 1.34 has them.
_OWN_ROWS = """\
# HELP kubernetes_build_info [BETA] A metric with a constant '1' value labeled by git version.
# TYPE kubernetes_build_info gauge
kubernetes_build_info{compiler="gc",git_version="v1.34.4",platform="linux/amd64"} 1
# HELP kubernetes_feature_enabled [BETA] The stage and enablement of a feature.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="KubeletFineGrainedAuthz",stage="BETA"} 1
kubernetes_feature_enabled{name="PodLogsQuerySplitStreams",stage="ALPHA"} 0
"""


def _volume_rows(pods: Iterable[FakePod]) -> Iterator[str]:
    for pod in pods:
        claim = f'namespace="{pod.namespace}",persistentvolumeclaim="{pod.name}-data"'
        yield f"kubelet_volume_stats_used_bytes{{{claim}}} 77\n"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
