# SPDX-License-Identifier: Apache-2.0
"""The peer: the real kube-proxy, on the one network namespace of its node."""

import time

import yaml

from tests.bench.services.cluster import NODE, BenchCluster
from tests.bench.services.guests import GuestFilter
from tests.bench.services.watcher import EndpointWatcher
from tests.k8s.build import Binaries
from tests.k8s.ring.processes import RingProcess
from tests.lab.namespaces import SYSTEM_PATH, LabNamespace

_MULTI = {"legacy": "/usr/sbin/xtables-legacy-multi", "nft": "/usr/sbin/xtables-nft-multi"}
_TOOLS = [f"{family}{name}" for family in ("iptables", "ip6tables") for name in ("", "-save", "-restore")]


class KubeProxy:
    """kube-proxy with the packet filter that guests have, and a minimum between two syncs.

    `min_sync` is a duration as Go writes it; "" leaves kube-proxy's default, 1 s.
    """

    def __init__(self, cluster: BenchCluster, binaries: Binaries, kind: GuestFilter, min_sync: str) -> None:
        self.name = f"kube-proxy {min_sync or 'default'}"
        self._cluster = cluster
        self._program = binaries["kube-proxy"]
        self._kind = kind
        self._min_sync = min_sync
        self.namespace = LabNamespace(cluster.node.name, {"PATH": SYSTEM_PATH})
        self.watcher: EndpointWatcher = kind.watcher(self.namespace)
        self.daemon: RingProcess | None = None
        self.started_s = 0.0

    @property
    def has_no_min_sync(self) -> bool:
        """Whether it may sync without a minimum interval."""
        return bool(self._min_sync)

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.pid

    def start(self) -> None:
        """Start it; does not wait."""
        directory = self._cluster.directory / f"kube-proxy-{self._kind.value}"
        directory.mkdir(exist_ok=True)
        for name in _TOOLS:
            link = directory / name
            if not link.is_symlink():
                link.symlink_to(_MULTI[self._kind.variant])
        config = directory / "config.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        self.started_s = time.monotonic()
        self.daemon = RingProcess(
            self.name,
            [*self._cluster.node.enter, self._program, f"--config={config}"],
            directory / "log",
            path=f"{directory}:{SYSTEM_PATH}",
        )

    def stop(self) -> None:
        """End it, and remove its rules, so that the next one starts as on a fresh node."""
        if self.daemon is None:
            return
        self.daemon.stop()
        self.daemon = None
        if self._kind is GuestFilter.NFT:
            self.namespace.run("nft", "flush", "ruleset")
            return
        for table in ("nat", "filter", "mangle"):
            for option in ("-F", "-X"):
                self.namespace.run(f"iptables-{self._kind.variant}", "-t", table, option)

    def close(self) -> None:
        self.stop()
        self.watcher.close()

    def saved(self) -> str:
        """Its IPv4 rules, as iptables-save or nft prints them."""
        if self._kind is GuestFilter.NFT:
            return self.namespace.run("nft", "list", "table", "ip", "kube-proxy")
        return self.namespace.run(f"iptables-{self._kind.variant}-save")

    def _config(self) -> dict[str, object]:
        mode = "nftables" if self._kind is GuestFilter.NFT else "iptables"
        sync_settings = {"minSyncPeriod": self._min_sync} if self._min_sync else {}
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._cluster.kubeconfig)},
            "hostnameOverride": NODE,
            "mode": mode,
            mode: sync_settings,
            "clusterCIDR": "10.64.0.0/10",
            # These are settings of the whole machine.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }


def saved_rules(text: str) -> int:
    """Rules of the nat table in the text of `KubeProxy.saved`; 0 for nft."""
    nat = text.partition("*nat\n")[2].partition("COMMIT")[0]
    return sum(line.startswith("-A ") for line in nat.splitlines())
