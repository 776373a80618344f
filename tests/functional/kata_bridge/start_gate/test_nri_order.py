# SPDX-License-Identifier: Apache-2.0
"""Restarts, lost connections and any order of events: the start gate allows the same containers."""

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bridge_api.messages import SetResolvConfRequest
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_runtime import FakeRuntime
from devkit.kata.guest_tables import FakeTables
from kata_bridge.nri.messages import Container, ContainerState
from kata_bridge.start_gate.core.decision import Need
from kata_bridge.ttrpc.status import TtrpcError
from ruleset.model import Family
from tests.functional.kata_bridge.start_gate.gated_node import (
    OTHER,
    TEXT,
    configuration,
    content,
    inode_of,
    pod,
    serving,
)
from tests.waiting import until

pytestmark = pytest.mark.asyncio


async def test_a_restart_keeps_resolvers_and_allowed_containers(
    short_dir: Path, runtime: FakeRuntime
) -> None:
    config = configuration(short_dir)
    web, waiting = pod("s1"), pod("s2")
    async with serving(config, short_dir, runtime) as node:
        for each in (web, waiting):
            await runtime.run_pod(each)
        await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
        await node.client.set_resolv_conf(
            SetResolvConfRequest("s2", "", wait_message="the network is not ready")
        )
        (mount,) = (await node.start(web)).mounts
        inode = inode_of(mount)
        await node.why(waiting)
    async with serving(config, short_dir, runtime) as node:
        assert node.metric("vcnode_katabridge_ungated_starts_total") == 0
        assert (await node.start(web)).mounts == (node.mount(web),)
        assert "the network is not ready" in await node.why(waiting)
        await node.client.set_resolv_conf(SetResolvConfRequest("s1", OTHER))
        assert (content(mount), inode_of(mount)) == (OTHER, inode)


async def test_ungated_starts_are_reported_once(short_dir: Path, runtime: FakeRuntime) -> None:
    """Without the runtime's own validator containers start while the plugin is away."""
    config = configuration(short_dir)
    async with serving(config, short_dir, runtime) as node:
        pass
    for name in ("s1", "s2", "s3"):
        is_off = name == "s2"
        running = pod(
            name, namespace="open" if is_off else "enforced", tenant="" if name == "s3" else "vc-a-1-a"
        )
        runtime.pods.append(running)
        container = Container(f"c-{name}", name, "main", ContainerState.CONTAINER_RUNNING)
        runtime.containers.append(container)
    dead = Container("c-dead", "s1", "old", ContainerState.CONTAINER_STOPPED)
    runtime.containers.append(dead)
    for expected in (1, 0):
        async with serving(config, short_dir, runtime) as node:
            assert node.metric("vcnode_katabridge_ungated_starts_total") == expected


@pytest.mark.parametrize("seed", range(8))
async def test_in_any_order_containers_wait_for_their_needs(
    short_dir: Path, runtime: FakeRuntime, seed: int
) -> None:
    """Shuffles all that can happen to some pods, and checks the guests themselves at each step."""
    chance = random.Random(seed)  # noqa: S311 - a test's order
    names = [f"s{number}" for number in range(4)]
    tables = {name: FakeTables() for name in names}
    submitted: set[str] = set()
    async with AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(FakeKata(short_dir, tables[name], sandbox_id=name))
        node = await stack.enter_async_context(
            serving(configuration(short_dir, needs=tuple(Need)), short_dir, runtime)
        )
        acts = [
            (name, act) for name in names for act in ("run", "push", "resolver", "flush", "withdraw", "drop")
        ]
        acts += [("", "drop")]
        chance.shuffle(acts)
        ran: set[str] = set()
        started = blocked = 0
        for name, act in [*acts, *((name, "all") for name in names)]:
            if act in ("run", "all") and name not in ran:
                await runtime.run_pod(pod(name, "kata"))
                ran.add(name)
            if act in ("push", "all") and name in ran:
                await node.push(name, generation=chance.randrange(1, 1000) if act == "push" else 1000)
            if act in ("resolver", "all"):
                await node.client.set_resolv_conf(SetResolvConfRequest("", TEXT, pod_uid=f"uid-{name}"))
                submitted.add(name)
            if act == "flush" and "VCN-" in tables[name].save(Family.IPV4):
                tables[name].flush(Family.IPV4, "nat")
            if act == "withdraw":
                await node.client.set_resolv_conf(SetResolvConfRequest("", "", pod_uid=f"uid-{name}"))
                submitted.discard(name)
            if act == "drop":
                before = runtime.registrations
                runtime.drop()
                await runtime.wait_registered(before + 1)
            for each in ran:
                try:
                    adjustment = await node.start(pod(each, "kata"))
                except TtrpcError:
                    blocked += 1
                    continue
                started += 1
                assert each in submitted
                assert content(adjustment.mounts[0]) == TEXT
                driver = node.bridge.guests.drivers[each]
                assert driver.machine.observed is not None
                assert driver.machine.observed.digest
        assert blocked
        # In the end all needs are met, and all containers start.
        for name in names:
            await until(lambda name=name: node.bridge.guests.drivers[name].machine.is_current)  # type: ignore[misc]  # a default
            await node.start(pod(name, "kata"))
        assert started
