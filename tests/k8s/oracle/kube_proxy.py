# SPDX-License-Identifier: Apache-2.0
"""The real kube-proxy in a node's namespace."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

from tests.k8s.build import KUBE_PROXY_ORACLE, Binaries
from tests.k8s.oracle.cluster import OracleCluster
from tests.k8s.oracle.draw import CLUSTER_CIDRS
from tests.k8s.oracle.sides import OracleSide
from tests.k8s.ring.processes import SYSTEM_PATH, RingProcess

_XTABLES = ("iptables", "ip6tables")


def start_kube_proxy(
    side: OracleSide, mode: str, cluster: OracleCluster, binaries: Binaries, stack: ExitStack
) -> RingProcess:
    """Start one that recognises the cluster's pods by their range, and syncs changes at once.

    In mode "iptables" it gets legacy iptables: with thousands of Services iptables-nft takes seconds.
    """
    node = side.node.name
    config = cluster.directory / f"kube-proxy-{node}.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": mode,
                "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
                "hostnameOverride": node,
                "clusterCIDR": ",".join(CLUSTER_CIDRS),
                "detectLocalMode": "ClusterCIDR",
                "healthzBindAddress": "127.0.0.1:10256",
                "metricsBindAddress": "127.0.0.1:10249",
                # These settings are the whole machine's.
                "conntrack": {
                    "maxPerCore": 0,
                    "min": 0,
                    "tcpEstablishedTimeout": "0s",
                    "tcpCloseWaitTimeout": "0s",
                },
                "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
                "nftables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
            }
        )
    )
    daemon = RingProcess(
        f"kube-proxy {node}",
        [
            *("nsenter", f"--net={side.ruled.path}", "setpriv", "--pdeathsig", "KILL"),
            *(binaries[KUBE_PROXY_ORACLE], f"--config={config}"),
        ],
        cluster.directory / f"kube-proxy-{node}.log",
        path=f"{_legacy(cluster.directory)}:{SYSTEM_PATH}",
    )
    stack.callback(daemon.stop)
    return daemon


def _legacy(directory: Path) -> Path:
    """A directory in which the plain names are those of legacy iptables."""
    made = directory / "legacy"
    made.mkdir(exist_ok=True)
    for name in _XTABLES:
        for suffix in ("", "-save", "-restore"):
            found = shutil.which(f"{name}-legacy{suffix}", path=SYSTEM_PATH)
            link = made / f"{name}{suffix}"
            if found is not None and not link.exists():
                link.symlink_to(found)
    return made
