# SPDX-License-Identifier: Apache-2.0
"""The controller where labels change while sandboxes stay: the network of a pod's resolver."""

import asyncio
import random
from typing import Any

import pytest

from bridge_api.messages import GuestResult, SetResolvConfRequest
from daemonkit.kube.resources import PODS, SERVICES
from dnsconfig.cluster.objects import NETWORKS
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.delivery.pod_resolvers import GRACE_S
from dnsconfig.delivery.withdrawals import FORGET_S
from dnsconfig.retention.resolver_retention import REVOCATION_DELAY_S, ResolverRetention
from dnsconfig.retention.sandbox_networks import SandboxNetworks
from tests.unit.dnsconfig.node import SimulatedNode
from tests.unit.dnsconfig.objects import network, pod, service, tenant
from tests.unit.dnsconfig.two_tenants import as_saved, node

pytestmark = pytest.mark.asyncio


def relabelled(here: SimulatedNode, name: str, **how: Any) -> str:
    """The tenant changes its pod's label."""
    return here.put_pod("a", network=name, **how)


async def relabelled_before(
    label: str,
) -> tuple[SimulatedNode, str, tuple[Snapshot, ResolverRetention, SandboxNetworks]]:
    """A node that has ended: its pod's guest was in blue when the label was changed. With the pod's UID and
    the saved state."""
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        before.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        relabelled(before, label)
        await asyncio.sleep(1)
        saved = as_saved(before)
    return before, uid, saved


async def test_a_changed_label_moves_no_guest() -> None:
    """Its sandbox stays attached, with the Services, by the label at its creation."""
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        here.put_pod("a", network="default")
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.11"]
        decision = here.controller.pods.by_pod["a-shop", "web"].decision
        assert decision.network is not None
        assert decision.network.network == "blue"
        assert "sandbox" in decision.network.source
        # Nor while kata-bridge is away, or has reported some guests only.
        here.controller.disconnected()
        here.controller.sync()
        assert "10.96.0.11" in here.controller.pods.by_pod["a-shop", "web"].desired.text
        here.bridge.lose_state()
        await asyncio.sleep(1)
        # The next sandbox is attached by the current label.
        here.bridge.remove("g1")
        here.bridge.add("g2", "a", "a-shop/web", uid=uid, networks=("default",))
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.10"]


async def in_a_missing_network(here: SimulatedNode, uid: str, label: str) -> None:
    """The pod's sandbox there retains nothing; back in the first network it does again."""
    assert label in here.waits(uid)
    assert {each.text for each in here.bridge.resolv_conf_requests if label in each.networks} == {""}
    assert not here.controller.pods.by_pod["a-shop", "web"].is_retained
    here.storage.delete(NETWORKS, "a-kube-system", "blue")
    here.bridge.remove("g2")
    here.bridge.add("g3", "a", "a-shop/web", uid=uid, networks=("blue",))
    await asyncio.sleep(1)
    assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
    assert here.controller.pods.by_pod["a-shop", "web"].is_retained


@pytest.mark.parametrize("label", ["red", "Not_A_Network"])
async def test_a_sandbox_of_another_network_retains_nothing(label: str) -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.11"]
        relabelled(here, label)
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        here.bridge.remove("g1")
        here.bridge.add("g2", "a", "a-shop/web", uid=uid, networks=(label,))
        await asyncio.sleep(1)
        await in_a_missing_network(here, uid, label)


@pytest.mark.parametrize("label", ["red", "Not_A_Network"])
async def test_a_sandbox_retains_nothing_after_a_restart_either(label: str) -> None:
    before, uid, saved = await relabelled_before(label)
    here = node(before.storage)
    here.controller.restore(*saved)
    here.bridge.add("g2", "a", "a-shop/web", uid=uid, networks=(label,))
    async with here.running():
        await in_a_missing_network(here, uid, label)


async def test_a_reduced_text_is_not_for_another_sandbox() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        here.bridge.remove("g1")
        here.bridge.add("g2", "a", "a-shop/web", uid=uid, networks=("red",))
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 2)
        assert here.waits(uid) == "network red does not exist"
        assert not here.controller.pods.by_pod["a-shop", "web"].is_server_removed
        assert not any("blue" in each.text for each in here.bridge.resolv_conf_requests)


@pytest.mark.parametrize("has_saved", [False, True])
async def test_a_restart_waits_for_the_pods_own_guest(has_saved: bool) -> None:
    before, uid, saved = await relabelled_before("default")
    here = node(before.storage)
    if has_saved:
        here.controller.restore(*saved)
    here.bridge.is_synced = False
    other = here.put_pod("a", "other")
    here.bridge.add("g0", "a", "a-shop/other", uid=other, networks=("default",))
    async with here.running(3 * GRACE_S):
        # A reported guest does not wait for the rest.
        assert [each.guest for each in here.bridge.resolv_conf_requests] == ["g0"]
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.11"]
        late = here.put_pod("a", "late")
        await asyncio.sleep(1)
        assert late not in here.bridge.resolv_confs
        here.bridge.finish_sync()
        await asyncio.sleep(1)
        assert here.servers(late) == ["10.96.0.10"]
        of_web = [
            each for each in here.bridge.resolv_conf_requests if "g1" in each.guest or each.pod_uid == uid
        ]
        assert [(each.networks, "10.96.0.11" in each.text) for each in of_web] == [(("blue",), True)]


async def test_an_outage_forgets_no_guests_networks() -> None:
    before, uid, saved = await relabelled_before("default")
    here = node(before.storage)
    here.transport.is_stalled = True
    here.bridge.is_synced = False
    here.controller.restore(Snapshot(), *saved[1:])
    async with here.running(2 * FORGET_S):
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert "10.96.0.11" in here.controller.pods.by_pod["a-shop", "web"].desired.text
        assert here.bridge.resolv_conf_requests == []
        # `synced` confirms that it is gone. The next sandbox is attached by the current label.
        here.bridge.finish_sync()
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.10"]
        assert here.bridge.resolv_conf_requests[-1].networks == ("default",)


async def test_a_changed_label_moves_no_runc_pod() -> None:
    here = node()
    sandbox = {
        "type": "PodReadyToStartContainers",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    uid = here.put_pod("a", network="blue")
    async with here.running():
        relabelled(here, "default")
        here.put(service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.12"]
        assert {each.networks for each in here.bridge.resolv_conf_requests} == {("blue",)}
        # Nor after a restart; the condition ends it.
        saved = as_saved(here)
    here = node(here.storage)
    here.controller.restore(*saved)
    async with here.running():
        assert here.servers(uid) == ["10.96.0.12"]
        for status, expected in ((sandbox, "10.96.0.12"), (sandbox | {"status": "False"}, "10.96.0.10")):
            item = pod("a", "web", network="default", nodeName="n1")
            here.storage.put(PODS, item | {"status": {"conditions": [status]}})
            await asyncio.sleep(1)
            assert here.servers(uid) == [expected]
        assert here.bridge.resolv_conf_requests[-1].networks == ("default",)


async def test_an_older_text_is_never_applied_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pod is named by its UID first and then by its guest, and the bridge orders no calls."""
    here = node()
    real, delays = here.bridge.set_resolv_conf, [1.0]

    async def slow_once(request: SetResolvConfRequest) -> GuestResult:
        await asyncio.sleep(delays.pop() if delays else 0.0)
        return await real(request)

    monkeypatch.setattr(here.bridge, "set_resolv_conf", slow_once)
    uid = here.put_pod("a")
    async with here.running(0.2):
        here.put(service("a", "default", "10.96.0.99"))
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        await asyncio.sleep(5)
        assert here.servers(uid) == ["10.96.0.99"]
        assert [each.guest for each in here.bridge.resolv_conf_requests] == ["", "g1"]


# The servers of each network are in a block of its own.
BLOCKS = {"default": "10.0.0.", "blue": "10.0.1.", "red": "10.0.2."}


class Tenant:
    """Random steps of a tenant and its node for one pod, by a seed. Describes each step."""

    def __init__(self, here: SimulatedNode, seed: int) -> None:
        self.here = here
        self.random = random.Random(seed)  # noqa: S311 - picks the steps of a test
        self.label, self.has_status, self.transitions = "blue", self.random.random() < 0.5, 0
        self.uid = ""
        self.put_pod()

    def put_pod(self) -> None:
        item = pod("a", "web", network=self.label, nodeName="n1")
        if self.has_status:
            is_ready = "True" if self.random.random() < 0.7 else "False"
            self.transitions += self.random.random() < 0.5
            condition = {
                "type": "PodReadyToStartContainers",
                "status": is_ready,
                "lastTransitionTime": f"{self.transitions}",
            }
            item["status"] = {"conditions": [condition]}
        self.uid = self.here.storage.put(PODS, item)["metadata"]["uid"]

    def step(self) -> str:
        what = self.random.choice(
            ["relabel", "sandbox", "end", "server", "none", "network", "bridge", "wait"]
        )
        name = self.random.choice(list(BLOCKS))
        here = self.here
        if what == "relabel":
            self.label = self.random.choice([*BLOCKS, "Not_A_Network"])
            self.put_pod()
        elif what == "sandbox":
            for guest in [*here.bridge.guests]:
                here.bridge.remove(guest)
            here.bridge.add(
                f"g{len(here.bridge.resolv_conf_requests)}",
                "a",
                "a-shop/web",
                uid=self.uid,
                networks=(self.label,),
            )
        elif what == "end":
            for guest in [*here.bridge.guests]:
                here.bridge.remove(guest)
        elif what == "server":
            here.put(network("a", name), service("a", name, f"{BLOCKS[name]}{self.random.randint(1, 9)}"))
        elif what == "none":
            here.storage.put(SERVICES, service("a", name))
        elif what == "network":
            here.put(network("a", name, "Pending"))
        elif what == "bridge":
            here.bridge.is_synced = False
            here.bridge.lose_state()
        else:
            here.bridge.finish_sync()
        return f"{what} {name} {self.label}"


@pytest.mark.parametrize("seed", range(40))
async def test_no_text_is_submitted_for_another_network(seed: int) -> None:
    here, steps = SimulatedNode(), []
    here.put(*tenant("a", **{name: f"{block}1" for name, block in BLOCKS.items()}))
    its = Tenant(here, seed)
    async with here.running():
        for _ in range(30):
            steps.append(its.step())
            await asyncio.sleep(its.random.choice([0.0, 0.1, 3.0, REVOCATION_DELAY_S + 1]))
        saved = as_saved(here)
        seen = list(here.bridge.resolv_conf_requests)
    again = SimulatedNode(here.storage)
    again.bridge.guests = here.bridge.guests
    again.bridge.is_synced = False
    if seed % 2:
        again.controller.restore(*saved)
    its.here = again
    async with again.running():
        for _ in range(10):
            steps.append(its.step())
            await asyncio.sleep(its.random.choice([0.0, 0.1, 3.0]))
        again.bridge.finish_sync()
        await asyncio.sleep(10)
    for each in [*seen, *again.bridge.resolv_conf_requests]:
        assert len(each.networks) == 1, steps
        block = BLOCKS.get(each.networks[0], "no text")
        for line in each.text.splitlines():
            assert not line.startswith("nameserver") or block in line, (each, steps)
    for known in again.bridge.guests.values():
        last = again.bridge.resolv_conf_requests[-1]
        assert (last.guest, last.networks) == (known.guest.id, known.guest.networks), steps
