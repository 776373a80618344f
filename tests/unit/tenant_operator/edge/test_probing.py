# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.foreign_hosts import ForeignHosts
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import NODES, PODS, SECRETS
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Storage
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import NODES_PODS, NodesProbe, ServedProbe
from tenant_operator.edge.probing import MAX_NODES, Prober
from tenant_operator.edge.ready_nodes import FRESH_S
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model import pods
from tenant_operator.model.objects import Ref
from tenant_operator.pki.handshake import HandshakeError, ServerFlight

pytestmark = pytest.mark.asyncio

PROBE = NodesProbe(Ref("Secret", "default", "client"), 10550, b"authority")


class NodesWorld:
    """A super cluster with nodes, of which those of `silent` addresses do not answer."""

    def __init__(self) -> None:
        self.cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
        self.client = InProcessClient(self.cluster)
        self.now_s = 0.0
        self.asked: list[str] = []
        self.silent: set[str] = set()
        self.cluster.create(
            SECRETS,
            {
                "metadata": {"name": "client", "namespace": "default"},
                "data": {"tls.crt": "YQ==", "tls.key": "Yg=="},
            },
        )
        outside = OperatorSurroundings(
            open_tenant=self._open, monotonic=lambda: self.now_s, wall=lambda: self.now_s
        )
        gated = GatedClient(self.client, lambda: True)
        self._prober = Prober(SuperClusterWriter(gated), self.client, outside, ForeignHosts(str).resolve)

    def add_node(self, name: str, address: str) -> None:
        made = self.cluster.create(NODES, {"metadata": {"name": name}})
        addresses = [{"type": "InternalIP", "address": address}]
        status = {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]}
        self.cluster.update(NODES, made | {"status": status}, "status")

    async def probe(self, replaced: str = "") -> ProbeResult:
        return await self._prober.run(msgspec.structs.replace(PROBE, pods=replaced))

    async def served(self) -> ProbeResult:
        return await self._prober.run(ServedProbe("default"))

    def add_server(self, name: str, address: str) -> None:
        labels = pods.selector("apiserver")["matchLabels"]
        made = self.cluster.create(
            PODS, {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {}}
        )
        self.cluster.update(PODS, made | {"status": {"podIP": address, "phase": "Running"}}, "status")

    def _open(self, access: Access) -> Any:
        self.asked.append(access.server)
        client = InProcessClient(self.cluster)
        if access.server in self.silent:
            client.failures = [UnreachableError("no answer")]
        return client


async def test_a_cluster_without_nodes_serves_nobody() -> None:
    world = NodesWorld()
    assert (await world.probe()).detail == "the super cluster has no node that is ready"
    world.add_node("n1", "192.0.2.1")
    found = await world.probe()
    assert (found.is_ok, found.detail) == (True, "vn-agents of 1 nodes serve it")
    assert world.asked == ["https://192.0.2.1:10550"]


async def test_one_list_of_nodes_serves_all_that_ask_about_then() -> None:
    world = NodesWorld()
    world.add_node("n1", "192.0.2.1")
    requests = []
    for now_s in (0.0, 1.0, FRESH_S - 1.0, FRESH_S):
        world.now_s, before = now_s, world.client.requests
        await world.probe()
        requests.append(world.client.requests - before)
    # The Secret of the client each time, which is not kept.
    assert requests == [2, 1, 1, 2]
    world.now_s, before = 10 * FRESH_S, world.client.requests
    await asyncio.gather(*(world.probe() for _ in range(5)))
    assert world.client.requests - before == 6


async def test_after_a_silent_node_they_are_listed_again() -> None:
    world = NodesWorld()
    world.add_node("n1", "192.0.2.1")
    await world.probe()
    world.silent = {"https://192.0.2.1:10550"}
    found = await world.probe()
    assert not found.is_ok
    assert found.detail == (
        "vn-agent of node n1 does not serve it: https://192.0.2.1:10550 does not answer: no answer"
    )
    world.add_node("n2", "192.0.2.2")
    found = await world.probe()
    assert (found.is_ok, found.facts) == (True, {"asked": "2", "serving": "1"})


@pytest.mark.parametrize("is_silent", [False, True])
async def test_answer_names_the_pods_that_were_replaced_before(*, is_silent: bool) -> None:
    world = NodesWorld()
    world.add_node("n1", "192.0.2.1")
    world.silent = {"https://192.0.2.1:10550"} if is_silent else set()
    found = await world.probe("since/1/2/1")
    assert (found.is_ok, found.facts[NODES_PODS]) == (not is_silent, "since/1/2/1")


async def test_a_client_that_is_missing_is_named() -> None:
    world = NodesWorld()
    world.cluster.delete(SECRETS, "default", "client")
    assert (await world.probe()).detail == "Secret default/client does not exist"


async def test_each_node_is_asked_some_time() -> None:
    """The first ones by name may all be without a vn-agent."""
    world = NodesWorld()
    for number in range(40):
        world.add_node(f"n{number:02}", f"192.0.2.{number}")
    for _ in range(50):
        await world.probe()
    assert len(set(world.asked)) > 2 * MAX_NODES
    assert len(world.asked) == 50 * MAX_NODES


async def test_each_server_shows_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer, or speaks otherwise, is left out."""
    world = NodesWorld()
    for number, name in enumerate(("shows", "silent", "speaks-otherwise", "has-none", "starts")):
        world.add_server(name, "" if name == "starts" else f"10.0.0.{number}")

    async def first_flight(host: str, port: int) -> ServerFlight:
        assert port == 6443
        match host:
            case "10.0.0.0":
                return ServerFlight((b"der", b"its authority"))
            case "10.0.0.1":
                raise OSError("refused")
            case "10.0.0.2":
                raise HandshakeError("no TLS")
        return ServerFlight()

    monkeypatch.setattr("tenant_operator.edge.probing.first_flight", first_flight)
    found = await world.served()
    assert (found.is_ok, found.detail) == (True, "1 of 5 show one")
    assert found.facts == {"shows": base64.b64encode(b"der").decode()}
