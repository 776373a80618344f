# SPDX-License-Identifier: Apache-2.0
"""One agent process with a fake kubelet, files and fixtures, for all cases of one configuration."""

import datetime as dt
import signal
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from devkit.files import replace_file
from devkit.kubelet.replies import Exchange, FakeReply
from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority, Leaf, self_signed
from tests.cases import upstream
from tests.cases.agent_files import NODE, configuration
from tests.cases.client import CaseClient, receive_reply
from tests.cases.daemon import AGENT, DaemonError, VnAgentProcess
from tests.cases.fixtures import RequestFixtures
from tests.cases.pages import PageError
from tests.waiting import holds_within

# The key of the agent's configuration for each key of a case's `config`.
_SETTINGS = {
    "max_tunnels_per_tenant": ("limits", "tunnelsPerTenant"),
    "tunnels_per_tenant": ("limits", "tunnelsPerTenant"),
    "max_connections_per_tenant": ("limits", "connectionsPerTenant"),
    "connections_per_tenant": ("limits", "connectionsPerTenant"),
    "max_requests_per_second_per_tenant": ("limits", "requestsPerSecondPerTenant"),
    "requests_per_second_per_tenant": ("limits", "requestsPerSecondPerTenant"),
    "pages_max_age_s": ("pages", "maxAgeSeconds"),
    "page_max_age_s": ("pages", "maxAgeSeconds"),
    "drain_s": ("drain", "seconds"),
}
# Parts that this agent lacks: their cases expect `otherwise`.
OPTIONAL_PARTS = frozenset({"sni", "tokens"})
_OWN_KEYS = frozenset({"trust", "movable_clock"})
# In each parallel request of ten-b: it separates them from the case's own requests.
PARALLEL_MARK = "limitBytes=917311"


class EnvironmentSetupError(Exception):
    """The environment cannot be set up for the case."""


def unknown_settings(config: Mapping[str, Any]) -> list[str]:
    """One problem for each unknown key of a case's `config`."""
    known = OPTIONAL_PARTS | _OWN_KEYS | set(_SETTINGS)
    return [f"harness does not know config.{key}" for key in config if key not in known]


class AgentEnvironment:
    """`start`, then any number of cases with `reset` between them, then `stop`."""

    def __init__(
        self, fixtures: RequestFixtures, directory: Path, config: Mapping[str, Any], *, module: str = AGENT
    ) -> None:
        self.fixtures = fixtures
        self.directory = directory
        self.config = config
        self.script: Mapping[str, Any] | None = None
        self.script_tenant: str | None = None
        self.is_other_request = False
        self.script_problem: str | None = None
        self.warming_s = 0.0
        """How long the kubelet delays parallel requests, so that several are open at once."""
        self.serving = Authority.create("agent-serving")
        self._kubelet_authority = Authority.create("kubelet-serving")
        self._agent_authority = Authority.create("agent-clients")
        self.agent_leaf = self._agent_authority.issue("vcnode:vn-agent:node-1", usages=("client",))
        self._trusted = tuple(config.get("trust", fixtures.tenants))
        self._is_tenants_dirty = False
        self._is_pods_dirty = False
        self._is_kubelet_dirty = False
        self._formerly_registered: set[str] = set()
        directory.mkdir(parents=True)
        self.tenants_directory.mkdir()
        self.kubelet = FakeKubelet(tls=self._kubelet_tls("good"), script=self._scripted_reply)
        self.daemon = VnAgentProcess(
            directory / "config.yaml",
            directory / "status.sock",
            is_clock_movable=bool(config.get("movable_clock")),
            module=module,
        )

    @property
    def tenants_directory(self) -> Path:
        return self.directory / "tenants"

    @property
    def pods_file(self) -> Path:
        return self.directory / "pods.json"

    @property
    def audit_file(self) -> Path:
        return self.directory / "audit.jsonl"

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.daemon.port)

    @property
    def is_trust_empty(self) -> bool:
        return not self._trusted

    def start(self) -> None:
        """Write all files; start kubelet and agent. Raises DaemonError."""
        self.kubelet.pods = tuple(pod.fake_pod() for pod in self.fixtures.pods)
        self.kubelet.start()
        self.write_files()
        if self.is_trust_empty:
            # Both are correct: it refuses to start, or it starts and serves no tenant.
            self.daemon.spawn()
            holds_within(lambda: not self.daemon.is_running or self._found_port(), 10)
            if not self.daemon.is_running:
                return
        else:
            self.daemon.start()
        # Cases count the kubelet's requests: those of the start are over.
        holds_within(self._has_read_facts, 10)

    def _has_read_facts(self) -> bool:
        """Whether the agent has read, or failed to read, what the kubelet reports of itself."""
        try:
            kubelet = self.daemon.status().get("kubelet", {})
        except (DaemonError, ValueError):
            return True  # another program than ours
        return "version" not in kubelet or bool(kubelet["version"] or kubelet["problems"])

    def _found_port(self) -> bool:
        try:
            self.daemon.port = self.daemon.listen_port()
        except (DaemonError, ValueError):
            return False
        return True

    def stop(self) -> None:
        self.daemon.stop()
        self.kubelet.stop()

    def write_files(self) -> None:
        """Write certificates, tenants, pods and the configuration."""
        directory = self.directory
        serving = self.serving.issue(f"system:node:{NODE}", sans_dns=[NODE], sans_ip=["127.0.0.1"])
        serving.write(directory, "serving")
        self.agent_leaf.write(directory, "agent")
        self._kubelet_authority.write(directory, "kubelet-ca")
        for key in self.fixtures.tenants:
            if key in self._trusted or self.fixtures.tenants[key].authority in self._trusted:
                self.write_tenant(key)
        self.fixtures.write_pods(self.pods_file)
        self.daemon.config.write_text(yaml.safe_dump(self.document()), encoding="utf-8")

    def document(self) -> dict[str, Any]:
        """The agent's configuration, by the contract."""
        directory = self.directory
        pods = {"source": "file", "file": str(self.pods_file), "trustContainersAnnotation": True}
        document = configuration(directory, kubelet_port=self.kubelet.port, pods=pods)
        document["pages"] = {"maxAgeSeconds": 0}
        (directory / "state").mkdir(exist_ok=True)
        if self.fixtures.spiffe_authority and self._trusted:
            ca_file = self.fixtures.identities.authority(self.fixtures.spiffe_authority).write(
                directory, "spiffe"
            )
            document["spiffe"] = {"caFile": str(ca_file), "trustDomain": self.fixtures.trust_domain}
        for key, value in self.config.items():
            if key in _SETTINGS:
                section, name = _SETTINGS[key]
                document.setdefault(section, {})[name] = value
        return document

    def write_tenant(self, key: str, *, extra: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
        text = self.fixtures.tenant_text(key, extra=extra, without=without)
        replace_file(self.tenants_directory / f"{key}.yaml", text)

    def client(self, identity: str, *, sni: str | None = None, is_tls: bool = True) -> CaseClient:
        """A connected client before its TLS handshake. Raises OSError."""
        context = self.fixtures.identities.context(identity, self.serving) if is_tls else None
        return CaseClient(self.address, context, sni=sni)

    def request(self, identity: str, text: str, timeout_s: float = 10.0) -> tuple[int | None, bytes]:
        """One request on a connection of its own: the status (None: no reply) and all bytes."""
        with self.client(identity) as client:
            if not client.handshake():
                raise ConnectionError(f"no handshake: {client.error or client.end}")
            client.send(text.encode())
            reply = receive_reply(client, text.split(" ", 1)[0], timeout_s)
            return (None if reply is None else reply.status), bytes(client.received)

    def own_exchanges(self, start: int) -> list[Exchange]:
        """The kubelet's exchanges since number `start`, without parallel requests."""
        return [e for e in self.kubelet.exchanges[start:] if PARALLEL_MARK not in e.target]

    def _scripted_reply(self, exchange: Exchange) -> FakeReply | None:
        if PARALLEL_MARK in exchange.target:
            return FakeReply(200, body=b"warm\n", delay_s=self.warming_s) if self.warming_s else None
        if self.script is None:
            return None
        segments = exchange.path.split("/")
        if len(segments) > 3 and segments[1] in ("containerLogs", "exec", "attach", "portForward"):
            owner = self.fixtures.owner_of(segments[2], segments[3])
            if owner is not None and owner != self.script_tenant:
                return None
        elif self.is_other_request:
            return None
        pods = [pod.fake_pod() for pod in self.fixtures.pods]
        try:
            return upstream.scripted(self.script, exchange, pods)
        except PageError as problem:
            self.script_problem = str(problem)
            return None

    def reset(self) -> None:
        """Restore what a case changed. Raises DaemonError."""
        self.script, self.script_tenant, self.script_problem = None, None, None
        self.is_other_request = False
        self.fixtures.reset()
        if self._is_kubelet_dirty:
            self._is_kubelet_dirty = False
            self.kubelet.restart(tls=self._kubelet_tls("good"))
        if self._is_pods_dirty:
            self._is_pods_dirty = False
            self.push_pods()
            self._is_pods_dirty = False
        if self._is_tenants_dirty:
            self._is_tenants_dirty = False
            self.daemon.after_reload(self._write_all_tenants)

    def _write_all_tenants(self) -> None:
        for key in self.fixtures.tenants:
            self.write_tenant(key)

    def push_pods(self) -> None:
        """Publish the current pods to kubelet and agent; wait until the agent has read them."""
        self._is_pods_dirty = True
        self.kubelet.pods = tuple(pod.fake_pod() for pod in self.fixtures.pods)
        self.daemon.after_reload(lambda: self.fixtures.write_pods(self.pods_file))

    def remove_tenant(self, key: str) -> None:
        self._is_tenants_dirty = True
        self.daemon.after_reload((self.tenants_directory / f"{key}.yaml").unlink)

    def add_tenant(self, key: str) -> None:
        self._is_tenants_dirty = True
        self.daemon.after_reload(lambda: self.write_tenant(key))

    def deregister(self, leaf: str) -> None:
        """Remove a leaf from its tenant's clients."""
        self._is_tenants_dirty = True
        for key, tenant in self.fixtures.tenants.items():
            if leaf in tenant.registered:
                self.daemon.after_reload(partial(self.write_tenant, key, without=(leaf,)))
                return
        raise EnvironmentSetupError(f"no tenant has registered {leaf}")

    def register(self, leaf: str) -> None:
        """Add a leaf to the clients of the tenant whose authority issued it."""
        self._is_tenants_dirty = True
        for name in self.fixtures.identities.names():
            raw = self.fixtures.identities.raw(name)
            for key, tenant in self.fixtures.tenants.items():
                if raw.get("cert") == leaf and raw.get("ca") == tenant.authority:
                    self.daemon.after_reload(partial(self.write_tenant, key, extra=(leaf,)))
                    return
        raise EnvironmentSetupError(f"no tenant's authority has issued {leaf}")

    def break_tenant_file(self, key: str) -> None:
        self._is_tenants_dirty = True
        path = self.tenants_directory / f"{key}.yaml"
        self.daemon.after_reload(lambda: replace_file(path, "kind: [broken"), result="error")

    def register_and_remove(self, identity: str) -> None:
        """Register an identity's leaf, check that the agent accepts it, and remove it again. Once."""
        if identity in self._formerly_registered:
            return
        self._formerly_registered.add(identity)
        leaf = str(self.fixtures.identities.raw(identity)["cert"])
        self.register(leaf)
        status, _ = self.request(identity, f"GET /healthz HTTP/1.1\r\nHost: {NODE}\r\n\r\n")
        if status != 200:
            raise EnvironmentSetupError(f"{leaf} was registered, and /healthz has status {status}")
        self.daemon.after_reload(self._write_all_tenants)

    def kubelet_certificate(self, kind: str) -> None:
        """Restart the kubelet with another serving certificate; this cuts all connections."""
        self._is_kubelet_dirty = True
        self.kubelet.restart(tls=self._kubelet_tls(kind))

    def kubelet_down(self) -> None:
        self._is_kubelet_dirty = True
        self.kubelet.pause()

    def reload_signal(self) -> None:
        self.daemon.after_reload(lambda: self.daemon.signal(signal.SIGHUP))

    def _kubelet_tls(self, kind: str) -> ssl.SSLContext:
        cert, key = self._kubelet_leaf(kind).write(self.directory, f"kubelet-{kind}")
        return kubelet_context(str(cert), str(key), self._agent_authority.cert_pem.decode())

    def _kubelet_leaf(self, kind: str) -> Leaf:
        names: list[str] = [NODE]
        usages = ("server",)
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        match kind:
            case "self-signed":
                return self_signed(NODE, sans_dns=names, sans_ip=["127.0.0.1"])
            case "rogue" | "other-ca":
                rogue = Authority.create("kubelet-serving")
                return rogue.issue(NODE, sans_dns=names, sans_ip=["127.0.0.1"], usages=usages)
            case "wrong-name":
                return self._kubelet_authority.issue("node-2", sans_dns=["node-2"], usages=usages)
            case "expired":
                return self._kubelet_authority.issue(
                    NODE,
                    sans_dns=names,
                    usages=usages,
                    not_before=past - dt.timedelta(days=9),
                    not_after=past,
                )
        return self._kubelet_authority.issue(NODE, sans_dns=names, sans_ip=["127.0.0.1"], usages=usages)
