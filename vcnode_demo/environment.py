# SPDX-License-Identifier: Apache-2.0
"""The environment of the demo: one node, its tenants, all certificates, one directory.

`close` ends every process and removes every file, also after a failure.
"""

import contextlib
import os
import shutil
import ssl
import tempfile
from pathlib import Path

from devkit.kubelet.pods import FakePod
from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority, Leaf
from vcnode_demo import kubelet_script
from vcnode_demo.daemon import VnAgent
from vcnode_demo.dns_environment import DnsEnvironment
from vcnode_demo.operator_environment import OperatorEnvironment
from vcnode_demo.services_environment import ServicesEnvironment
from vcnode_demo.super_cluster import FakeSuperCluster
from vcnode_demo.syncer_environment import SyncerEnvironment
from vcnode_demo.tenant import DemoTenant
from vcnode_demo.tenant_client import TenantClient

# sockaddr_un.sun_path is 108 bytes with its NUL (unix(7)); the longest name in the directory is
# shorter than this.
_SOCKET_NAME_BYTES = 40
_MAX_SOCKET_PATH_BYTES = 107


class Environment:
    """`open` and `close`; as a context manager it does both."""

    def __init__(self) -> None:
        self._ending = contextlib.ExitStack()
        # The last lines of all logs, for a failure after `close`.
        self.last_log_lines: list[str] = []
        self.agent_port = 0
        self._agent: VnAgent | None = None
        self.services: ServicesEnvironment | None = None
        self.dns: DnsEnvironment | None = None
        self.syncer: SyncerEnvironment | None = None
        self.operator: OperatorEnvironment | None = None
        self.super_cluster = FakeSuperCluster(kubelet_script.NODE_NAME)
        self.tenants: dict[str, DemoTenant] = {}
        self.pods: dict[str, FakePod] = {}
        self._kubelet_authority = Authority.create("kubelet-serving")
        self._agent_authority = Authority.create("kubelet-clients")
        self._serving_authority = Authority.create("vn-agent-serving")
        self.directory = _directory()
        self._ending.callback(shutil.rmtree, self.directory, ignore_errors=True)
        try:
            self.serving_ca_file = self._serving_authority.write(self.directory, "vn-agent-ca")
            self.kubelet = FakeKubelet(
                tls=self._kubelet_tls(),
                node_name=kubelet_script.NODE_NAME,
                script=lambda exchange: kubelet_script.script(exchange, self.kubelet.pods),
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Environment":
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def agent(self) -> VnAgent:
        if self._agent is None:
            raise AssertionError("the environment is not open")
        return self._agent

    def open(self) -> None:
        """Start everything. Raises ToolError."""
        self.super_cluster.start()
        self._ending.callback(self.super_cluster.stop)
        for name in ("acme", "globex", "initech"):
            self._add_tenant(name)
        self.pods["host"] = self.super_cluster.add_pod(
            "kube-system", "kube-proxy-x7k2q", {}, {}, container="kube-proxy"
        )
        self._add_pod("acme", "web", "shop", "a-0001")
        self._add_pod("acme", "web", "vault", "a-0002")
        self._add_pod("globex", "web", "shop", "g-0001")
        self._add_pod("initech", "web", "shop", "i-0001")
        self.kubelet.pods = tuple(self.pods.values())
        self.kubelet.start()
        self._ending.callback(self.kubelet.stop)
        self._agent = VnAgent(self.directory, self._agent_config())
        self._ending.callback(self._agent.stop)
        self.start_agent()

    def close(self) -> None:
        """End everything that was started, last first, and remove the directory. May be called twice."""
        started = (self._agent, self.services, self.dns, self.syncer, self.operator)
        parts = [part for part in started if part is not None]
        self.last_log_lines = [
            line for part in parts for line in part.last_log_lines()
        ] or self.last_log_lines
        self._ending.close()

    def open_services(self) -> ServicesEnvironment:
        """Start what the Services scenario needs; `close` ends it. Raises ToolError."""
        self.services = ServicesEnvironment(
            self._subdirectory("services"), self.super_cluster, self._remaining_tenants()
        )
        self._ending.callback(self.services.close)
        self.services.open()
        return self.services

    def open_dns(self) -> DnsEnvironment:
        """Start what the DNS scenario needs; `close` ends it. Raises ToolError."""
        self.dns = DnsEnvironment(self._subdirectory("dns"), self.super_cluster, self._remaining_tenants())
        self._ending.callback(self.dns.close)
        self.dns.open()
        return self.dns

    def open_syncer(self) -> SyncerEnvironment:
        """Start what the scenario of vc-syncer needs, with tenants of its own; `close` ends it.

        Raises ToolError.
        """
        names = ("hooli", "umbrella")
        for name in names:
            self._add_tenant(name)
        self.syncer = SyncerEnvironment(
            self._subdirectory("syncer"),
            self.super_cluster,
            {name: self.tenants[name] for name in names},
            self.agent_port,
        )
        self._ending.callback(self.syncer.close)
        self.super_cluster.start_node(self._run_synced_pods)
        self.syncer.open()
        return self.syncer

    def open_operator(self) -> OperatorEnvironment:
        """Start what the scenario of vc-operator needs, after that of vc-syncer; `close` ends it.

        Raises ToolError.
        """
        self.operator = OperatorEnvironment(
            self._subdirectory("operator"), self.super_cluster, self.agent_port, self.serving_ca_file
        )
        self._ending.callback(self.operator.close)
        self.operator.open()
        return self.operator

    def _run_synced_pods(self, synced: tuple[FakePod, ...]) -> None:
        """What vc-syncer made and the scheduler bound runs in the kubelet, beside the pods made by hand."""
        self.kubelet.pods = (*self.pods.values(), *synced)

    def _subdirectory(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir()
        return directory

    def _remaining_tenants(self) -> dict[str, str]:
        """The cluster keys, by name, of the tenants that no scenario removes."""
        return {name: self.tenants[name].key for name in ("acme", "globex")}

    def start_agent(self) -> None:
        """Start the agent, the first time or again; it chooses a port each time. Raises ToolError."""
        self.agent.start()
        self.agent_port = self.agent.port

    def caller(self, name: str, leaf: Leaf | None, port: int = 0) -> TenantClient:
        """A client of the agent with this certificate."""
        return TenantClient(name, port or self.agent_port, self.serving_ca_file, leaf)

    def apiserver_of(self, tenant: str) -> TenantClient:
        return self.caller(tenant, self.tenants[tenant].apiserver)

    def _add_tenant(self, name: str) -> None:
        authority = Authority.create("kubernetes")
        # As VirtualCluster's provisioner makes them: one certificate is the apiserver's serving and
        # kubelet client certificate, and every authority has the same name.
        apiserver = authority.issue(name, usages=("client", "server"))
        metrics = authority.issue("metrics-server", usages=("client",))
        admin = authority.issue("admin", organization="system:masters", usages=("client",))
        key = self.super_cluster.add_tenant(name, authority, apiserver, metrics)
        self.tenants[name] = DemoTenant(name, key, authority, apiserver, metrics, admin)
        for leaf, file in ((apiserver, "apiserver"), (metrics, "metrics"), (admin, "admin")):
            leaf.write(self.directory / name, file)

    def _add_pod(self, tenant: str, namespace: str, name: str, uid: str) -> None:
        key = self.tenants[tenant].key
        self.pods[f"{tenant} {namespace}/{name}"] = self.super_cluster.add_tenant_pod(
            tenant, key, namespace, name, uid
        )

    def _kubelet_tls(self) -> ssl.SSLContext:
        leaf = self._kubelet_authority.issue(
            f"system:node:{kubelet_script.NODE_NAME}", sans_ip=("127.0.0.1",), usages=("server",)
        )
        certificate, key = leaf.write(self.directory, "kubelet")
        return kubelet_context(str(certificate), str(key), self._agent_authority.cert_pem.decode())

    def _agent_config(self) -> dict[str, object]:
        serving = self._serving_authority.issue(
            f"system:node:{kubelet_script.NODE_NAME}",
            sans_ip=("127.0.0.1",),
            sans_dns=("localhost",),
            usages=("server",),
        )
        client = self._agent_authority.issue(
            f"system:vn-agent:{kubelet_script.NODE_NAME}", usages=("client",)
        )
        serving_certificate, serving_key = serving.write(self.directory, "vn-agent-serving")
        client_certificate, client_key = client.write(self.directory, "vn-agent-client")
        kubeconfig = self.directory / "super-cluster.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(self.super_cluster.kubeconfig("vn-agent"))
        return {
            "nodeName": kubelet_script.NODE_NAME,
            "listen": {"address": "127.0.0.1", "port": 0},
            "serving": {"certificateFile": str(serving_certificate), "keyFile": str(serving_key)},
            "kubelet": {
                "address": "127.0.0.1",
                "port": self.kubelet.port,
                "caFile": str(self._kubelet_authority.write(self.directory, "kubelet-ca")),
                "clientCertificateFile": str(client_certificate),
                "clientKeyFile": str(client_key),
            },
            "tenants": {"kubeconfigFile": str(kubeconfig)},
            "pods": {"source": "superCluster"},
            "stateDirectory": str(self.directory / "state"),
            "drain": {"seconds": 1},
        }


def _directory() -> Path:
    """A new directory that is short enough for a socket in it."""
    path = Path(tempfile.mkdtemp(prefix="vcnode-demo-"))
    if len(os.fsencode(path)) + _SOCKET_NAME_BYTES > _MAX_SOCKET_PATH_BYTES:
        path.rmdir()
        path = Path(tempfile.mkdtemp(prefix="vcnode-demo-", dir="/tmp"))
    return path
