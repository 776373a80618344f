# SPDX-License-Identifier: Apache-2.0
"""The gate of the whole daemon, asked by a stand-in of the runtime."""

import asyncio
import dataclasses
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from daemonkit.run import Lifecycle, Supervision
from kata_bridge import gate
from kata_bridge.api.client import BridgeClient, BridgeRefuses
from kata_bridge.api.messages import ResultCode
from kata_bridge.config import (
    Drain,
    Drift,
    Gate,
    KataBridgeConfiguration,
    Listen,
    NamespacePolicy,
    Nri,
    RuntimeRule,
    Sandboxes,
    Stock,
)
from kata_bridge.core.gate import Need, Policy
from kata_bridge.core.sandboxes import Appeared, sandbox_of
from kata_bridge.discovery_nri import seen_of
from kata_bridge.nri.messages import (
    Container,
    ContainerAdjustment,
    ContainerState,
    LinuxNamespace,
    LinuxPodSandbox,
    Mount,
    PodSandbox,
)
from kata_bridge.service import Service
from kata_bridge.testing.guest_tables import MemoryTables
from kata_bridge.testing.sample_rulesets import sample
from kata_bridge.testing.stand_in_kata import StandInKata
from kata_bridge.testing.stand_in_runtime import StandInRuntime
from kata_bridge.ttrpc.status import StatusError
from ruleset.model import Family
from tenancy import keys
from tests.functional.kata_bridge.fake_guests import DEADLINE_S, until

pytestmark = pytest.mark.asyncio

NETNS = LinuxPodSandbox((LinuxNamespace("network", "/run/netns/x"),))
TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\n"
NOBODY_SAID = "nobody has said yet which DNS server network default has"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: pytest's own leaves too little of a socket's 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="vcg"))
    yield made
    shutil.rmtree(made)


@pytest_asyncio.fixture
async def runtime(place: Path) -> AsyncIterator[StandInRuntime]:
    async with StandInRuntime(place / "nri.sock") as running:
        yield running


def configuration(place: Path, **settings: object) -> KataBridgeConfiguration:
    """Guests are those of handler `kata`; namespaces `warned` and `open` have policies of their own."""
    rules = (NamespacePolicy(("warned",), Policy.WARN), NamespacePolicy(("open",), Policy.OFF))
    made = Gate(directory=place / "pods", namespaces=rules)
    return KataBridgeConfiguration(
        state_directory=place / "state",
        sandboxes=Sandboxes(nri=Nri(place / "nri.sock")),
        listen=Listen(place / "bridge.sock"),
        lock_file=place / "lock",
        runtimes=(RuntimeRule(("kata*",), ("stock",)), RuntimeRule(("*",), ())),
        stock=Stock(shim_directories=(place / "sbs", place / "kata")),
        drift=Drift(0.3),
        drain=Drain(0.5),
        gate=dataclasses.replace(made, **settings),  # type: ignore[arg-type]  # the tests' own words
    )


@dataclass(slots=True)
class Node:
    """A runtime with the daemon on it, and a client of the daemon."""

    place: Path
    runtime: StandInRuntime
    service: Service
    client: BridgeClient
    number: int = 0

    async def start(self, pod: PodSandbox, name: str = "main", *mounts: Mount) -> ContainerAdjustment:
        """Create a container; raises `StatusError` where it is held."""
        self.number += 1
        of_sandbox = Mount("/etc/resolv.conf", "bind", f"/var/lib/x/sandboxes/{pod.id}/resolv.conf", ("rw",))
        container = Container(
            f"{pod.id}-{name}-{self.number}",
            pod.id,
            name,
            ContainerState.CONTAINER_RUNNING,
            mounts=mounts or (of_sandbox,),
        )
        return await self.runtime.create_container(pod, container) or ContainerAdjustment()

    async def why(self, pod: PodSandbox, name: str = "main", *mounts: Mount) -> str:
        """Why a container is not created."""
        with pytest.raises(StatusError) as caught:
            await self.start(pod, name, *mounts)
        return caught.value.message

    async def push(self, *sandboxes: str, generation: int = 1) -> None:
        async with asyncio.timeout(DEADLINE_S):
            async for result in self.client.set_ruleset(sandboxes, sample(generation)):
                assert result.code in (ResultCode.APPLIED, ResultCode.UNCHANGED), result

    def mount(self, pod: PodSandbox) -> Mount:
        source = str(self.place / "pods" / pod.id / "resolv.conf")
        return Mount("/etc/resolv.conf", "bind", source, ("rbind", "ro", "rprivate"))

    def metric(self, name: str) -> float:
        page = self.service.registry.render().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


@asynccontextmanager
async def serving(
    config: KataBridgeConfiguration, place: Path, runtime: StandInRuntime
) -> AsyncIterator[Node]:
    service = Service(config)
    life = Lifecycle(Supervision(), send=lambda *_: None)
    before = runtime.registrations
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(life))
        await until(config.listen.socket.exists, "the socket")
        try:
            async with BridgeClient(place / "bridge.sock") as client:
                async with asyncio.timeout(DEADLINE_S):
                    await runtime.has_registered(before + 1)
                yield Node(place, runtime, service, client)
        finally:
            life.stop()


@pytest_asyncio.fixture
async def node(place: Path, runtime: StandInRuntime) -> AsyncIterator[Node]:
    async with serving(configuration(place), place, runtime) as running:
        yield running


def pod(
    name: str,
    handler: str = "",
    *,
    namespace: str = "enforced",
    tenant: str = "vc-a-123abc-shop",
    annotations: Mapping[str, str] | None = None,
    linux: LinuxPodSandbox | None = NETNS,
) -> PodSandbox:
    whose = {keys.CLUSTER: tenant, keys.NAMESPACE: "shop", keys.UID: f"tenants-{name}"} if tenant else {}
    more = whose | dict(annotations or {})
    return PodSandbox(name, f"pod-{name}", f"uid-{name}", namespace, {}, more, handler, linux, 7)


def content(mount: Mount) -> str:
    return Path(mount.source).read_text()


def inode_of(mount: Mount) -> int | None:
    """Of the file itself, which containers have mounted; None if it is gone with all of its directory."""
    source = Path(mount.source)
    return source.stat().st_ino if source.parent.exists() else None


async def test_a_guest_waits_for_its_rules_and_its_resolver(node: Node) -> None:
    async with StandInKata(node.place, MemoryTables(), sandbox_id="s1"):
        web = pod("s1", "kata")
        await node.runtime.run_pod(web)
        await until(lambda: node.service.guests.drivers["s1"].channel_name == "shim")
        why = await node.why(web)
        assert why == (
            "waiting: nobody has said yet what the Services of network default are; "
            f"{NOBODY_SAID} (it is tried again by itself)"
        )
        (held,) = node.service.status()["gate"]["held"]  # type: ignore[index]  # JSON
        assert (held["pod"], held["containers"], held["why"]) == ("enforced/pod-s1", ["main"], why)
        await node.push("s1")
        assert await node.why(web) == f"waiting: {NOBODY_SAID} (it is tried again by itself)"
        result = await node.client.set_resolv_conf("s1", TEXT)
        assert result.code is ResultCode.APPLIED
        assert node.service.status()["gate"]["held"] == []  # type: ignore[index]  # JSON
        assert await node.start(web) == ContainerAdjustment(mounts=(node.mount(web),))
        assert content(node.mount(web)) == TEXT
        assert node.metric("vcnode_gate_open_seconds_count") == 1


async def test_a_guest_that_loses_its_rules_starts_nothing_more(node: Node) -> None:
    tables = MemoryTables()
    async with StandInKata(node.place, tables, sandbox_id="s1") as kata:
        web = pod("s1", "kata")
        await node.runtime.run_pod(web)
        await node.push("s1")
        await node.client.set_resolv_conf("s1", TEXT)
        await node.start(web)
        # Its shim and its agent are gone: nobody knows what the guest holds.
        await kata.shim.__aexit__(None, None, None)
        await kata.agent.__aexit__(None, None, None)
        driver = node.service.guests.drivers["s1"]
        await until(lambda: driver.machine.held is None)
        assert await node.why(web) == (
            "waiting: the pod's guest cannot be reached, so the Services of network default are not in it"
            " (it is tried again by itself)"
        )


async def test_runc_waits_for_its_resolver_alone_and_what_is_said_before_counts(node: Node) -> None:
    web, early = pod("s1"), pod("s2")
    await node.runtime.run_pod(web)
    assert NOBODY_SAID in await node.why(web)
    words = "network default is not ready: it has no DNS server yet"
    await node.client.set_resolv_conf("", "", waits=words, pod_uid="uid-s1")
    assert await node.why(web) == f"waiting: {words} (it is tried again by itself)"
    await node.client.set_resolv_conf("", TEXT, pod_uid="uid-s1")
    assert (await node.start(web)).mounts == (node.mount(web),)
    assert (await node.client.set_resolv_conf("", OTHER, pod_uid="uid-s2")).code is ResultCode.APPLIED
    await node.runtime.run_pod(early)
    assert (await node.start(early)).mounts == (node.mount(early),)
    assert content(node.mount(early)) == OTHER


async def test_what_is_said_of_a_guest_counts_also_before_the_runtime_tells_of_it(node: Node) -> None:
    """A list of the CRI may be first: after our restart NRI waits behind containers that end slowly."""
    async with StandInKata(node.place, MemoryTables(), sandbox_id="s1"):
        web = pod("s1", "kata")
        node.service.guests.take([Appeared(sandbox_of(seen_of(web)))])
        await node.push("s1")
        await node.client.set_resolv_conf("s1", "", waits="network default is not ready")
        await node.runtime.run_pod(web)
        assert "network default is not ready" in await node.why(web)
        await node.runtime.stop_pod(web)
        again = dataclasses.replace(web, id="s2")
    async with StandInKata(node.place, MemoryTables(), sandbox_id="s2"):
        node.service.guests.take([Appeared(sandbox_of(seen_of(again)))])
        await node.push("s2")
        await node.client.set_resolv_conf("s2", TEXT)
        await node.runtime.run_pod(again)
        assert (await node.start(again)).mounts == (node.mount(again),)


async def test_a_resolv_conf_changes_in_place_and_goes_with_its_sandbox(node: Node) -> None:
    web = pod("s1")
    await node.client.set_resolv_conf("", TEXT, pod_uid="uid-s1")
    await node.runtime.run_pod(web)
    (mount,) = (await node.start(web)).mounts
    inode = inode_of(mount)
    assert (await node.client.set_resolv_conf("s1", OTHER)).code is ResultCode.APPLIED
    assert (content(mount), inode_of(mount)) == (OTHER, inode)
    assert (await node.client.set_resolv_conf("s1", OTHER)).code is ResultCode.UNCHANGED
    # What runs keeps what it has; what starts waits.
    await node.client.set_resolv_conf("s1", "", waits="the network is gone")
    assert content(mount) == OTHER
    assert "the network is gone" in await node.why(web)
    await node.client.set_resolv_conf("s1", "")
    assert NOBODY_SAID in await node.why(web)
    await node.runtime.stop_pod(web)
    assert inode_of(mount) is None
    assert (await node.client.set_resolv_conf("s1", TEXT)).code is ResultCode.GONE


async def test_a_container_with_a_resolv_conf_of_its_own_is_not_touched(node: Node) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    own = Mount("/etc/resolv.conf", "bind", "/var/lib/kubelet/pods/u/volume-subpaths/c/main/0", ("rbind",))
    assert await node.start(web, "main", own) == ContainerAdjustment()
    await node.client.set_resolv_conf("s1", TEXT)
    assert await node.start(web, "main", own) == ContainerAdjustment()


async def test_pods_that_are_none_of_ours_are_let_be(node: Node) -> None:
    for each in (
        pod("s1", tenant=""),
        pod("s2", "kata", tenant=""),
        pod("s3", linux=None),
        pod("s4", tenant="", annotations={keys.NETWORK_READINESS: "false"}),
    ):
        await node.runtime.run_pod(each)
        assert await node.start(each) == ContainerAdjustment()


async def test_whose_tenant_cannot_be_told_waits(node: Node) -> None:
    odd = pod("s1", annotations={keys.CLUSTER: "../x"})
    await node.runtime.run_pod(odd)
    assert "whose pod it is cannot be told" in await node.why(odd)


async def test_warn_and_off(node: Node) -> None:
    warned, let_be = pod("s1", namespace="warned"), pod("s2", namespace="open")
    for each in (warned, let_be):
        await node.runtime.run_pod(each)
        assert await node.start(each) == ContainerAdjustment()
    assert node.metric("vcnode_gate_warned_total") == 1
    assert node.metric("vcnode_gate_holds_total") == 0
    for each in (warned, let_be):
        await node.client.set_resolv_conf(each.id, TEXT)
        assert (await node.start(each)).mounts == (node.mount(each),)
    assert node.metric("vcnode_gate_warned_total") == 1


async def test_a_network_that_is_not_ready_gets_no_sandbox(node: Node) -> None:
    """Without an API server the annotation is what it was at the sandbox's start: each try needs another."""
    web = pod("s1", annotations={keys.NETWORK_READINESS: "false"})
    with pytest.raises(StatusError, match="network default is not ready for this pod"):
        await node.runtime.run_pod(web)
    ready = pod("s2", annotations={keys.NETWORK_READINESS: "true"})
    await node.runtime.run_pod(ready)
    await node.client.set_resolv_conf("s2", TEXT)
    await node.start(ready)


async def test_another_plugin_that_takes_the_mount_is_found_out(node: Node) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf("s1", TEXT)
    theirs = Mount("/etc/resolv.conf", "bind", "/theirs", ("rbind",))
    node.runtime.adjust = lambda adjustment: ContainerAdjustment(mounts=(theirs,))
    assert "another plugin of the node has replaced its resolv.conf" in await node.why(web)
    node.runtime.adjust = None
    await node.start(web)


async def test_nothing_is_lost_when_the_bridge_restarts(place: Path, runtime: StandInRuntime) -> None:
    config = configuration(place)
    web, waiting = pod("s1"), pod("s2")
    async with serving(config, place, runtime) as node:
        for each in (web, waiting):
            await runtime.run_pod(each)
        await node.client.set_resolv_conf("s1", TEXT)
        await node.client.set_resolv_conf("s2", "", waits="the network is not ready")
        (mount,) = (await node.start(web)).mounts
        inode = inode_of(mount)
        await node.why(waiting)
    async with serving(config, place, runtime) as node:
        assert node.metric("vcnode_gate_got_through_total") == 0
        assert (await node.start(web)).mounts == (node.mount(web),)
        assert "the network is not ready" in await node.why(waiting)
        await node.client.set_resolv_conf("s1", OTHER)
        assert (content(mount), inode_of(mount)) == (OTHER, inode)


async def test_what_got_through_while_the_bridge_was_away_is_reported_once(
    place: Path, runtime: StandInRuntime
) -> None:
    """Without the runtime's own validator a node without its plugin is an open gate."""
    config = configuration(place)
    async with serving(config, place, runtime) as node:
        pass
    for name in ("s1", "s2", "s3"):
        let_be = name == "s2"
        running = pod(
            name, namespace="open" if let_be else "enforced", tenant="" if name == "s3" else "vc-a-1-a"
        )
        runtime.pods.append(running)
        container = Container(f"c-{name}", name, "main", ContainerState.CONTAINER_RUNNING)
        runtime.containers.append(container)
    dead = Container("c-dead", "s1", "old", ContainerState.CONTAINER_STOPPED)
    runtime.containers.append(dead)
    for expected in (1, 0):
        async with serving(config, place, runtime) as node:
            assert node.metric("vcnode_gate_got_through_total") == expected


async def test_the_api_says_what_it_does_not_take(node: Node) -> None:
    await node.runtime.run_pod(pod("s1"))
    for guest, uid, text, waits in (
        ("", "", TEXT, ""),
        ("s1", "u", TEXT, ""),
        ("", "u" * 200, TEXT, ""),
        ("", "u", TEXT, "w" * 5000),
        ("", "uid-s1", "\0", ""),
    ):
        with pytest.raises(BridgeRefuses):
            await node.client.set_resolv_conf(guest, text, waits=waits, pod_uid=uid)


async def test_a_full_disk_holds_what_needs_a_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf("s1", TEXT)

    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("kata_bridge.guest.resolv_conf.write", full)
        assert "its resolv.conf cannot be written on the node" in await node.why(web)
    await node.start(web)


@pytest.mark.parametrize("seed", range(8))
async def test_in_whatever_order_things_come_nothing_starts_before_both_are_in(
    place: Path, runtime: StandInRuntime, seed: int
) -> None:
    """Some pods, and everything that can happen to them, shuffled; the guests themselves are looked at."""
    chance = random.Random(seed)  # noqa: S311 - a test's order
    names = [f"s{number}" for number in range(4)]
    tables = {name: MemoryTables() for name in names}
    said: set[str] = set()
    async with AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(StandInKata(place, tables[name], sandbox_id=name))
        node = await stack.enter_async_context(
            serving(configuration(place, needs=tuple(Need)), place, runtime)
        )
        acts = [(name, act) for name in names for act in ("run", "push", "say", "flush", "withdraw", "drop")]
        acts += [("", "drop")]
        chance.shuffle(acts)
        ran: set[str] = set()
        started = held = 0
        for name, act in [*acts, *((name, "all") for name in names)]:
            if act in ("run", "all") and name not in ran:
                await runtime.run_pod(pod(name, "kata"))
                ran.add(name)
            if act in ("push", "all") and name in ran:
                await node.push(name, generation=chance.randrange(1, 1000) if act == "push" else 1000)
            if act in ("say", "all"):
                await node.client.set_resolv_conf("", TEXT, pod_uid=f"uid-{name}")
                said.add(name)
            if act == "flush" and "VCN-" in tables[name].save(Family.IPV4):
                tables[name].flush(Family.IPV4, "nat")
            if act == "withdraw":
                await node.client.set_resolv_conf("", "", pod_uid=f"uid-{name}")
                said.discard(name)
            if act == "drop":
                before = runtime.registrations
                runtime.drop()
                await runtime.has_registered(before + 1)
            for each in ran:
                try:
                    adjustment = await node.start(pod(each, "kata"))
                except StatusError:
                    held += 1
                    continue
                started += 1
                assert each in said
                assert content(adjustment.mounts[0]) == TEXT
                driver = node.service.guests.drivers[each]
                assert driver.machine.held is not None
                assert driver.machine.held.digest
        assert held
        # In the end all is in, and so are they.
        for name in names:
            await until(lambda name=name: node.service.guests.drivers[name].machine.is_current)  # type: ignore[misc]  # a default
            await node.start(pod(name, "kata"))
        assert started


async def test_a_reason_to_wait_writes_nothing_where_there_is_nothing_to_hold(node: Node) -> None:
    # A guest that the gate does not know, as those out of files: an empty text is no file.
    result = await node.client.set_resolv_conf("made-by-hand", "", waits="network red does not exist")
    assert result.code is ResultCode.UNCHANGED
    assert (await node.client.set_resolv_conf("made-by-hand", TEXT)).code is not ResultCode.UNCHANGED


async def test_a_sandbox_that_has_just_begun_is_given_a_moment(node: Node) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    starting = asyncio.gather(node.start(web))
    await asyncio.sleep(0.02)  # so that the runtime asks first; it would pass the other way round too
    await node.client.set_resolv_conf("s1", TEXT)
    assert (await starting)[0].mounts == (node.mount(web),)
    assert node.metric("vcnode_gate_holds_total") == 0


async def test_guests_that_are_never_reached_hold_up_nobody(node: Node) -> None:
    """All of the runtime's calls wait behind each of ours."""
    loop = asyncio.get_running_loop()
    lost = [pod(f"s{number}") for number in range(60)]
    for each in lost:
        await node.runtime.run_pod(each)
    began_s = loop.time()
    for each in lost:
        await node.why(each)
    took_s = loop.time() - began_s
    assert took_s < gate.PATIENCE_AT_ONCE_S + 60 * gate.PATIENCE_S / 2
