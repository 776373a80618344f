# SPDX-License-Identifier: Apache-2.0
"""The gate of the whole daemon, asked by a stand-in of the runtime: who waits, for what, and how long."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge_api.messages import ResultCode
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import FakeTables
from kata_bridge.nri.messages import ContainerAdjustment
from kata_bridge.patience import Patience
from kata_bridge.sandboxes.core.sandbox import Appeared, sandbox_of
from kata_bridge.sandboxes.nri_source import seen_of
from kata_bridge.start_gate import gate
from kata_bridge.ttrpc.status import TtrpcError
from tenancy import keys
from tests.functional.kata_bridge.fake_guests import DEADLINE_S
from tests.functional.kata_bridge.start_gate.gated_node import (
    NOBODY_SAID,
    OTHER,
    TEXT,
    Node,
    content,
    gated,
    pod,
)
from tests.waiting import until

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def node(place: Path) -> AsyncIterator[Node]:
    async with gated(place) as running:
        yield running


async def test_a_guest_waits_for_its_rules_and_its_resolver(node: Node) -> None:
    async with FakeKata(node.place, FakeTables(), sandbox_id="s1"):
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
    tables = FakeTables()
    async with FakeKata(node.place, tables, sandbox_id="s1") as kata:
        web = pod("s1", "kata")
        await node.runtime.run_pod(web)
        await node.push("s1")
        await node.client.set_resolv_conf("s1", TEXT)
        await node.start(web)
        # Its shim and its agent are gone: nobody knows what the guest holds.
        await kata.shim.__aexit__(None, None, None)
        await kata.agent.__aexit__(None, None, None)
        driver = node.service.guests.drivers["s1"]
        await until(lambda: driver.machine.observed is None)
        assert await node.why(web) == (
            "waiting: the pod's guest cannot be reached, so the Services of network default are not in it"
            " (it is tried again by itself)"
        )


async def test_runc_waits_for_its_resolver_alone_and_what_is_said_before_counts(node: Node) -> None:
    web, early = pod("s1"), pod("s2")
    await node.runtime.run_pod(web)
    assert NOBODY_SAID in await node.why(web)
    words = "network default is not ready: it has no DNS server yet"
    await node.client.set_resolv_conf("", "", wait_message=words, pod_uid="uid-s1")
    assert await node.why(web) == f"waiting: {words} (it is tried again by itself)"
    await node.client.set_resolv_conf("", TEXT, pod_uid="uid-s1")
    assert (await node.start(web)).mounts == (node.mount(web),)
    assert (await node.client.set_resolv_conf("", OTHER, pod_uid="uid-s2")).code is ResultCode.APPLIED
    await node.runtime.run_pod(early)
    assert (await node.start(early)).mounts == (node.mount(early),)
    assert content(node.mount(early)) == OTHER


async def test_what_is_said_of_a_guest_counts_also_before_the_runtime_tells_of_it(node: Node) -> None:
    """A list of the CRI may be first: after our restart NRI waits behind containers that end slowly."""
    async with FakeKata(node.place, FakeTables(), sandbox_id="s1"):
        web = pod("s1", "kata")
        node.service.guests.update([Appeared(sandbox_of(seen_of(web)))])
        await node.push("s1")
        await node.client.set_resolv_conf("s1", "", wait_message="network default is not ready")
        await node.runtime.run_pod(web)
        assert "network default is not ready" in await node.why(web)
        await node.runtime.stop_pod(web)
        again = dataclasses.replace(web, id="s2")
    async with FakeKata(node.place, FakeTables(), sandbox_id="s2"):
        node.service.guests.update([Appeared(sandbox_of(seen_of(again)))])
        await node.push("s2")
        await node.client.set_resolv_conf("s2", TEXT)
        await node.runtime.run_pod(again)
        assert (await node.start(again)).mounts == (node.mount(again),)


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
    with pytest.raises(TtrpcError, match="network default is not ready for this pod"):
        await node.runtime.run_pod(web)
    ready = pod("s2", annotations={keys.NETWORK_READINESS: "true"})
    await node.runtime.run_pod(ready)
    await node.client.set_resolv_conf("s2", TEXT)
    await node.start(ready)


async def test_a_sandbox_that_has_just_begun_is_given_a_moment(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A moment that is long enough for this client on a busy machine.
    monkeypatch.setattr(gate, "PATIENCE_S", gate.PATIENCE_AT_ONCE_S)
    is_waiting = asyncio.Event()
    wait = Patience.wait

    async def noted(patience: Patience, event: asyncio.Event) -> None:
        is_waiting.set()
        await wait(patience, event)

    monkeypatch.setattr(Patience, "wait", noted)
    async with gated(place) as node:
        web = pod("s1")
        await node.runtime.run_pod(web)
        starting = asyncio.gather(node.start(web))
        async with asyncio.timeout(DEADLINE_S):
            await is_waiting.wait()
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
