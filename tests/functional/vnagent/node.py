# SPDX-License-Identifier: Apache-2.0
"""A node under test: a real vn-agent process, a fake kubelet, tenants with certificates."""

import contextlib
import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from devkit.files import replace_file
from devkit.kubelet.pods import FakePod, pod_list
from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority, Leaf
from tenancy import keys
from tests.cases.agent_files import NODE, configuration, tenant_document
from tests.cases.client import CaseClient, receive_reply
from tests.cases.daemon import VnAgentProcess
from tests.cases.replies import ReceivedReply
from tests.waiting import wait_until

NAME = NODE
DEADLINE_S = 15.0
SPDY = (
    "Connection: Upgrade",
    "Upgrade: SPDY/3.1",
    "X-Stream-Protocol-Version: v4.channel.k8s.io",
)


def tenant_pod(
    tenant: str, namespace: str, name: str, *, uid: str = "", super_namespace: str = "", number: int = 0
) -> FakePod:
    """A tenant's pod as the syncer brings it down. Its marker is in its logs and streams."""
    own = uid or f"t-{tenant}-{namespace}-{name}-{number}"
    annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: namespace, keys.UID: own}
    super_uid = f"s-{tenant}-{namespace}-{name}-{number}"
    return FakePod(super_namespace or f"{tenant}-{namespace}", name, super_uid, annotations=annotations)


@dataclass(frozen=True, slots=True)
class NodeTenant:
    """A tenant's authority and the certificate of its apiserver."""

    key: str
    authority: Authority
    leaf: Leaf

    def document(self, *leaves: Leaf) -> str:
        """The file that registers it, with its own leaf or these."""
        clients = ((leaf.spki_sha256, "apiserver") for leaf in leaves or (self.leaf,))
        return yaml.safe_dump(tenant_document(self.key, self.authority.cert_pem, clients))


class AgentNode:
    """`start`, use, `stop`. All files are in `directory`; its status is in `daemon`."""

    def __init__(
        self,
        directory: Path,
        tenants: Iterable[str],
        pods: Iterable[FakePod],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.tenants = {}
        for key in tenants:
            # As VirtualCluster's: every tenant's authority has the same name.
            authority = Authority.create("kubernetes")
            self.tenants[key] = NodeTenant(key, authority, authority.issue("kube-apiserver-kubelet-client"))
        self.serving = Authority.create("agent-serving")
        self.kubelet_authority = Authority.create("kubelet-serving")
        self.agent_clients = Authority.create("agent-clients")
        self.tenants_directory = directory / "tenants"
        self.tenants_directory.mkdir(parents=True)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.kubelet = self.new_kubelet(pods)
        self.proxy_port: int | None = None  # where the agent dials, if the kubelet is not there
        self.daemon = VnAgentProcess(directory / "config.yaml", directory / "status.sock")

    # ---- life

    def start(self) -> None:
        """Write all files, start kubelet and agent, and wait until it is ready."""
        self.kubelet.start()
        self.write_serving()
        self.write_agent_certificate()
        self.write_kubelet_authority()
        for key in self.tenants:
            self.write_tenant(key)
        self.write_config()
        self.daemon.start()
        # Tests count the kubelet's requests: those of the start are over.
        wait_until(self.has_read_facts, within_s=DEADLINE_S)

    def has_read_facts(self) -> bool:
        """Whether the agent has read, or failed to read, what the kubelet reports of itself."""
        kubelet = self.daemon.status()["kubelet"]
        return bool(kubelet["version"] or kubelet["problems"])

    def stop(self) -> None:
        self.daemon.stop()
        self.kubelet.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- files

    def write_config(self) -> None:
        """The configuration by the contract, with `settings` on top, section by section."""
        document = configuration(
            self.directory,
            kubelet_port=self.proxy_port or self.kubelet.port,
            pods={"source": "kubelet", "intervalSeconds": 0.2},
        )
        self.daemon.config.write_text(yaml.safe_dump(document | self.settings), encoding="utf-8")

    def write_tenant(self, key: str, *leaves: Leaf) -> None:
        replace_file(self.tenants_directory / f"{key}.yaml", self.tenants[key].document(*leaves))

    def write_serving(self) -> None:
        """A new serving certificate for the agent."""
        leaf = self.serving.issue(f"system:node:{NAME}", sans_dns=[NAME], sans_ip=["127.0.0.1"])
        leaf.write(self.directory, "serving")

    def write_agent_certificate(self) -> None:
        """A new certificate of the agent's for the kubelet."""
        leaf = self.agent_clients.issue(f"vcnode:vn-agent:{NAME}", usages=("client",))
        leaf.write(self.directory, "agent")

    def write_kubelet_authority(self) -> None:
        """The authority by which the agent verifies the kubelet."""
        self.kubelet_authority.write(self.directory, "kubelet-ca")

    def write_pod_file(self, path: Path) -> None:
        """The kubelet's pods as a file, for `pods.source: file`."""
        replace_file(path, json.dumps(pod_list(self.kubelet.pods)))

    def kubelet_tls(self, authority: Authority | None = None) -> ssl.SSLContext:
        """TLS of the kubelet with a new certificate."""
        leaf = (authority or self.kubelet_authority).issue(NAME, sans_dns=[NAME], usages=("server",))
        certificate, key = leaf.write(self.directory, "kubelet")
        return kubelet_context(str(certificate), str(key), self.agent_clients.cert_pem.decode())

    def new_kubelet(self, pods: Iterable[FakePod]) -> FakeKubelet:
        """The server upstream."""
        return FakeKubelet(pods, tls=self.kubelet_tls())

    # ---- pods

    def set_pods(self, *pods: FakePod) -> None:
        """Run these pods, and wait until the agent has read the kubelet's list."""
        self.kubelet.pods = pods
        self.wait_for_pods()

    def wait_for_pods(self) -> None:
        """Wait until a read of /pods that began from now on is published: the next one has begun."""
        before = len(self.kubelet.requests("/pods"))
        wait_until(lambda: len(self.kubelet.requests("/pods")) >= before + 2, within_s=DEADLINE_S)

    # ---- requests

    def context(self, key: str, leaf: Leaf | None = None) -> ssl.SSLContext:
        """TLS of a tenant's apiserver that verifies the agent."""
        if leaf is None and key in self._contexts:
            return self._contexts[key]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.serving.cert_pem.decode())
        (leaf or self.tenants[key].leaf).load_into(context)
        if leaf is None:
            self._contexts[key] = context
        return context

    def forget_contexts(self) -> None:
        """For the time after `serving` was replaced: clients trust the new authority alone."""
        self._contexts.clear()

    @contextlib.contextmanager
    def client(self, key: str, leaf: Leaf | None = None) -> Iterator[CaseClient]:
        """A tenant's connection after its handshake."""
        with CaseClient(("127.0.0.1", self.daemon.port), self.context(key, leaf), sni=NAME) as client:
            client.handshake()
            yield client

    def ask(self, key: str, line: str, *headers: str, leaf: Leaf | None = None) -> ReceivedReply | None:
        """One request on a connection of its own. None if the agent ends it without a reply."""
        with self.client(key, leaf) as client:
            client.send(head(line, *headers))
            return reply_of(client, line.partition(" ")[0])

    def logs(self, key: str, namespace: str, name: str, query: str = "") -> ReceivedReply | None:
        return self.ask(key, f"GET /containerLogs/{namespace}/{name}/app{query}")


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {NAME}", *headers, "", ""]).encode("latin-1")


def reply_of(client: CaseClient, method: str = "GET", timeout_s: float = DEADLINE_S) -> ReceivedReply | None:
    """Receive until the first reply is complete; None if it never is."""
    reply = receive_reply(client, method, timeout_s)
    return reply if reply is not None and reply.is_complete else None


def received(client: CaseClient, expected: bytes, timeout_s: float = DEADLINE_S) -> bool:
    """Receive until `expected` is among the bytes."""
    end = time.monotonic() + timeout_s
    while expected not in client.received:
        if not client.receive(max(0.0, end - time.monotonic())):
            return False
    return True
