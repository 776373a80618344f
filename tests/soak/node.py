# SPDX-License-Identifier: Apache-2.0
"""The node of a soak: the real daemons between fake API servers and a fake kubelet, with its tenants.

It runs in network, mount and process namespaces of its own (`__main__`), so ports, mounts and processes are
all the soak's.
"""

import contextlib
import secrets
import ssl
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

from daemonkit.kube.resources import PODS
from devkit.kubelet.pods import FakePod, page_for
from devkit.kubelet.replies import Exchange, FakeReply, Tunnel
from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority, Leaf
from tests import moved_clock
from tests.soak import processor_time
from vcnode_demo.daemon import Daemon, VnAgent
from vcnode_demo.dns_environment import DnsEnvironment
from vcnode_demo.services_environment import ServicesEnvironment
from vcnode_demo.super_cluster import FakeSuperCluster
from vcnode_demo.syncer_environment import SyncerEnvironment
from vcnode_demo.tenant import DemoTenant
from vcnode_demo.tenant_client import TenantClient

NODE_NAME = "node-1"
NAMESPACE = "shop"
PORT = 10550
# Each tenant has it; the other one has a name that only its owner knows.
SHARED_POD = "web"
RESIDENTS = ("acme", "globex")
# They have control planes, which vc-syncer reads; all of theirs in the super cluster is its work.
SYNCED = ("hooli", "umbrella")
# Of pods that come and go.
JOB_PREFIX = "job-"
# Requests that the fake kubelet remembers: the load reads the last ones.
_MOST_EXCHANGES = 2000


@dataclass(slots=True)
class SoakTenant:
    """A tenant with its pods by name. `marker` is in all that its pods say."""

    identity: DemoTenant
    marker: str
    pods: dict[str, FakePod] = field(default_factory=dict)
    # One that comes and goes, so that the vNode's processor time has those of ended pods.
    job: FakePod | None = None

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def secret_pod(self) -> str:
        """The pod whose name no other tenant has."""
        return f"vault-{self.marker}"

    def words(self) -> list[bytes]:
        """What must not be in any answer to another tenant."""
        uids = [pod.uid for pod in self.pods.values()]
        return [word.encode() for word in (self.identity.key, self.marker, *uids)]


class SoakNode:
    """`open` and `close`. The caller mounts `directory`, and a small file system at its `full`."""

    def __init__(self, directory: Path) -> None:
        """Starts the fakes, which the daemons' configurations name."""
        self.directory = directory
        self.small_disk = directory / "full"
        self.clock = directory / "clock"
        moved_clock.move(self.clock, 0.0)
        self.tenants: dict[str, SoakTenant] = {}
        self._synced_pods: tuple[FakePod, ...] = ()
        self._words: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._job: FakePod | None = None
        self._begun_s: dict[str, float] = {}  # of each running pod, by its uid
        self._ending = contextlib.ExitStack()
        self._kubelet_authority = Authority.create("kubelet-serving")
        self._agent_authority = Authority.create("kubelet-clients")
        self._serving_authority = Authority.create("vn-agent-serving")
        self.serving_ca_file = self._serving_authority.write(directory, "vn-agent-ca")
        self.super_cluster = FakeSuperCluster(NODE_NAME)
        self.kubelet = FakeKubelet(tls=self.kubelet_tls(), node_name=NODE_NAME, script=self._script)
        self._ending.callback(self.super_cluster.stop)
        self.super_cluster.start()
        self._ending.callback(self.kubelet.stop)
        self.kubelet.start()
        self.agent = VnAgent(directory, self._agent_config(), run_by=self.run_by)
        self.synced = {name: self._register(name) for name in SYNCED}
        (directory / "syncer").mkdir()
        self.syncer = SyncerEnvironment(
            directory / "syncer",
            self.super_cluster,
            {name: tenant.identity for name, tenant in self.synced.items()},
            PORT,
            run_by=self.run_by,
        )
        keys = {name: self.add_tenant(name).identity.key for name in RESIDENTS}
        (directory / "services").mkdir()
        self.services = ServicesEnvironment(
            directory / "services", self.super_cluster, keys, run_by=self.run_by
        )
        (directory / "dns").mkdir()
        self.dns = DnsEnvironment(directory / "dns", self.super_cluster, keys, run_by=self.run_by)
        # Two nodes' bridges: one has guests with agents of ours, the other one the start gate.
        self.guest_daemons: dict[str, Daemon] = {
            "kata-bridge": self.services.bridge,
            "kubeproxy-ext": self.services.proxy,
            "kata-bridge, gate": self.dns.bridge,
            "dnsconfig": self.dns.dns,
        }
        self.daemons: dict[str, Daemon] = {
            "vn-agent": self.agent,
            "vc-syncer": self.syncer.syncer,
            **self.guest_daemons,
        }

    @property
    def run_by(self) -> tuple[str, ...]:
        """Runs daemons with a time of day that the soak moves."""
        return ("tests.moved_clock", str(self.clock), "wall")

    def open(self) -> None:
        """Start the daemons. Raises ToolError."""
        self.super_cluster.add_node()
        self.super_cluster.start_node(self._run_synced_pods)
        self._ending.callback(self.agent.stop)
        self.agent.start()
        self._ending.callback(self.services.close)
        self.services.open()
        self._ending.callback(self.dns.close)
        self.dns.open()
        self._ending.callback(self.syncer.close)
        self.syncer.open()

    def close(self) -> None:
        """End everything that was started, last first."""
        self._ending.close()

    # ---- tenants

    def add_tenant(self, name: str) -> SoakTenant:
        """A tenant with two pods."""
        tenant = self._register(name)
        for pod in (SHARED_POD, tenant.secret_pod):
            made = self.super_cluster.add_tenant_pod(
                tenant.marker, tenant.identity.key, NAMESPACE, pod, secrets.token_hex(8)
            )
            tenant.pods[pod] = made
            self.say(made, f"{tenant.marker} is up")
        with self._lock:
            self.tenants[name] = tenant
            self._words[name] = tenant.words()
        self._run_pods()
        return tenant

    def _register(self, name: str) -> SoakTenant:
        """A VirtualCluster with its certificates."""
        own = new_identity(name, "")
        key = self.super_cluster.add_tenant(name, own.authority, own.apiserver, own.metrics)
        tenant = SoakTenant(replace(own, key=key), marker=secrets.token_hex(8))
        with self._lock:
            self._words[name] = tenant.words()
        return tenant

    def remove_tenant(self, tenant: SoakTenant) -> None:
        """Delete its VirtualCluster, as its owner does. Its pods go on for a while."""
        self.super_cluster.remove_tenant(tenant.name)

    def remove_pods(self, tenant: SoakTenant) -> None:
        for pod in tenant.pods.values():
            self.super_cluster.delete(PODS, pod.namespace, pod.name)
        with self._lock:
            del self.tenants[tenant.name]
        self._run_pods()

    def churn(self) -> bool:
        """A pod of the super cluster's own comes to the node, and the one before goes: watches see that. So
        does a pod of each resident."""
        name = f"{JOB_PREFIX}{next(self._numbers)}"
        pod = self.super_cluster.add_pod("kube-system", name, {}, {})
        if self._job is not None:
            self.super_cluster.delete(PODS, self._job.namespace, self._job.name)
        self._job = pod
        for tenant in (self.tenants[resident] for resident in RESIDENTS):
            ended, tenant.job = (
                tenant.job,
                self.super_cluster.add_tenant_pod(
                    tenant.marker, tenant.identity.key, NAMESPACE, name, secrets.token_hex(8)
                ),
            )
            self._run_pods()
            if ended is not None:
                self.super_cluster.delete(PODS, ended.namespace, ended.name)
        return True

    def foreign_words(self, tenant: SoakTenant) -> list[bytes]:
        """The words of all others, also of those that were removed."""
        with self._lock:
            return [word for name, words in self._words.items() if name != tenant.name for word in words]

    def caller(self, tenant: SoakTenant, leaf: Leaf | None = None) -> TenantClient:
        """The tenant's API server, or another client of it."""
        return TenantClient(tenant.name, PORT, self.serving_ca_file, leaf or tenant.identity.apiserver)

    def _run_synced_pods(self, synced: tuple[FakePod, ...]) -> None:
        """What vc-syncer made and the scheduler bound runs in the kubelet too."""
        self._synced_pods = synced
        self._run_pods()

    def _run_pods(self) -> None:
        with self._lock:
            own = [pod for each in self.tenants.values() for pod in each.pods.values()]
            jobs = [each.job for each in self.tenants.values() if each.job is not None]
            self.kubelet.pods = (*own, *jobs, *self._synced_pods)
            begun_s = {pod.uid: self._begun_s.get(pod.uid, time.monotonic()) for pod in self.kubelet.pods}
            self._begun_s = begun_s

    # ---- kubelet

    def say(self, pod: FakePod, line: str) -> None:
        """Write a line into the pod's log."""
        self.kubelet.append_log(pod.namespace, pod.name, "app", line)

    def kubelet_tls(self) -> ssl.SSLContext:
        """A new serving certificate of the kubelet."""
        leaf = self._kubelet_authority.issue(
            f"system:node:{NODE_NAME}", sans_ip=("127.0.0.1",), usages=("server",)
        )
        certificate, key = leaf.write(self.directory, "kubelet")
        return kubelet_context(str(certificate), str(key), self._agent_authority.cert_pem.decode())

    def _script(self, exchange: Exchange) -> FakeReply | None:
        """A port of each pod speaks first, with the pod's marker. Pages with processor time have what each
        pod has used since its begin. All else is the fake's default."""
        del self.kubelet.exchanges[:-_MOST_EXCHANGES]
        if exchange.path in processor_time.PAGES:
            return self._page_with_times(exchange.path)
        kind, namespace, name, *_ = [*exchange.path.split("/")[1:], "", "", ""]
        if kind != "portForward" or not exchange.is_upgrade:
            return None
        for pod in self.kubelet.pods:
            if (pod.namespace, pod.name) == (namespace, name):
                return FakeReply(101, tunnel=Tunnel.SINK, answer=partial(_port, pod))
        return None

    def _page_with_times(self, path: str) -> FakeReply:
        with self._lock:
            pods, begun_s = self.kubelet.pods, self._begun_s
        now_s, at_ms = time.monotonic(), int(time.time() * 1000)
        made = page_for(path, pods, NODE_NAME)
        if made is None:
            raise AssertionError(path)
        used_s = {(pod.namespace, pod.name): (now_s - begun_s[pod.uid]) * _cores(pod.name) for pod in pods}
        content_type, page = made
        body = processor_time.with_times(path, page, used_s, at_ms)
        return FakeReply(200, (("Content-Type", content_type),), body)

    # ---- certificates of vn-agent

    def renew_serving(self) -> Leaf:
        """Put a new serving certificate into vn-agent's files."""
        leaf = self._serving_authority.issue(
            f"system:node:{NODE_NAME}", sans_ip=("127.0.0.1",), sans_dns=("localhost",), usages=("server",)
        )
        leaf.write(self.directory, "vn-agent-serving")
        return leaf

    def renew_kubelet_client(self, name: str) -> None:
        """Put a new client certificate for the kubelet, of this common name, into vn-agent's files."""
        self._agent_authority.issue(name, usages=("client",)).write(self.directory, "vn-agent-client")

    def _agent_config(self) -> dict[str, object]:
        self.renew_serving()
        self.renew_kubelet_client(f"system:vn-agent:{NODE_NAME}")
        kubeconfig = self.directory / "super-cluster.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(self.super_cluster.kubeconfig("vn-agent"))
        return {
            "nodeName": NODE_NAME,
            "listen": {"address": "127.0.0.1", "port": PORT},
            "serving": {
                "certificateFile": str(self.directory / "vn-agent-serving.crt"),
                "keyFile": str(self.directory / "vn-agent-serving.key"),
            },
            "kubelet": {
                "address": "127.0.0.1",
                "port": self.kubelet.port,
                "caFile": str(self._kubelet_authority.write(self.directory, "kubelet-ca")),
                "clientCertificateFile": str(self.directory / "vn-agent-client.crt"),
                "clientKeyFile": str(self.directory / "vn-agent-client.key"),
            },
            "tenants": {"kubeconfigFile": str(kubeconfig)},
            "pods": {"source": "superCluster"},
            "stateDirectory": str(self.small_disk / "state"),
            "audit": {"file": str(self.small_disk / "audit.jsonl")},
            "drain": {"seconds": 1},
        }


def _cores(pod: str) -> float:
    """How many cores a pod uses: a total that forgot ended pods would fall, as the others use little."""
    return 1.0 if pod.startswith(JOB_PREFIX) else 0.01


def new_identity(name: str, key: str) -> DemoTenant:
    """A new authority of a tenant, and its certificates. All have one name, as VirtualCluster has it."""
    authority = Authority.create("kubernetes")
    return DemoTenant(
        name,
        key,
        authority,
        apiserver=authority.issue(name, usages=("client", "server")),
        metrics=authority.issue("metrics-server", usages=("client",)),
        admin=authority.issue("admin", organization="system:masters", usages=("client",)),
    )


def _port(pod: FakePod, sent: bytes) -> bytes:
    """A port of a pod: what it is sent comes back behind its owner's marker."""
    return f"{pod.labels['owner']} ".encode() + sent
