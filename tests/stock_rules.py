# SPDX-License-Identifier: Apache-2.0
"""The PromQL of kubernetes-mixin 1.x, as kube-prometheus installs it, over pages that vn-agent serves.

`RULES` are recording rules, `PANELS` the expressions of the dashboards "Compute Resources" and "Networking".
`JOB` stands for the selector of cadvisor's job. `kube_pod_info` is kube-state-metrics' of the tenant.
What stock rules ask of a kubelet that no tenant gets is in docs/spec/kubelet-api.md, "Metric pages".
"""

from __future__ import annotations

from typing import Final

JOB: Final = 'job="kubelet"'
_CONTAINERS: Final = f'{JOB}, image!=""'
_OF_NODE: Final = (
    " * on (cluster, namespace, pod) group_left(node) topk by (cluster, namespace, pod) ("
    '1, max by (cluster, namespace, pod, node) (kube_pod_info{node!=""}))'
)
_DISKS: Final = 'device=~"(/dev/)?(mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|md.+|dasd.+)"'
_BY_CONTAINER: Final = "sum by (cluster, namespace, pod, container)"

_CPU: Final = "container_cpu_usage_seconds_total"
_MEMORY: Final = ("working_set_bytes", "rss", "cache", "swap")

RULES: Final = {
    f"node_namespace_pod_container:{_CPU}:sum_rate5m": (
        f"{_BY_CONTAINER} (rate({_CPU}{{{_CONTAINERS}}}[5m])){_OF_NODE}"
    ),
    f"node_namespace_pod_container:{_CPU}:sum_irate": (
        f"{_BY_CONTAINER} (irate({_CPU}{{{_CONTAINERS}}}[5m])){_OF_NODE}"
    ),
    **{
        f"node_namespace_pod_container:container_memory_{each}": (
            f"container_memory_{each}{{{_CONTAINERS}}}{_OF_NODE}"
        )
        for each in _MEMORY
    },
}

_NETWORK: Final = tuple(
    f"container_network_{way}_{what}_total"
    for way in ("receive", "transmit")
    for what in ("bytes", "packets", "packets_dropped")
)
_DISK_ROWS: Final = tuple(
    f"container_fs_{way}_{what}" for way in ("reads", "writes") for what in ("total", "bytes_total")
)

PANELS: Final = (
    *(f"sum by (namespace) ({name})" for name in RULES),
    *(f"sum by (pod) (max by (cluster, namespace, pod, container) ({name}))" for name in RULES),
    f'sum by (container) (container_memory_working_set_bytes{{{JOB}, container!="", image!=""}})',
    *(f'sum by (container) (container_memory_{each}{{{JOB}, container!=""}})' for each in _MEMORY[1:]),
    *(f"sum by (pod) (rate({each}{{{JOB}}}[5m]))" for each in _NETWORK),
    *(f'sum by (pod) (rate({each}{{{JOB}, namespace!=""}}[5m]))' for each in _NETWORK),
)
# Rows that a page has only where a pod is throttled, or writes to a disk that cadvisor knows.
PANELS_OF_SOME_NODES: Final = (
    f'sum by (container) (increase(container_cpu_cfs_throttled_periods_total{{{JOB}, container!=""}}[5m]))'
    f' / sum by (container) (increase(container_cpu_cfs_periods_total{{{JOB}, container!=""}}[5m]))',
    *(
        f'sum by (pod) (rate({each}{{{JOB}, {_DISKS}, container!="", namespace!=""}}[5m]))'
        for each in _DISK_ROWS
    ),
)
