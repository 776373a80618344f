# SPDX-License-Identifier: Apache-2.0
"""The start gate of the whole daemon, called by a fake runtime: what it blocks, why, and for how long."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from bridge_api.messages import ResultCode, SetResolvConfRequest
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import FakeTables
from kata_bridge.nri.messages import ContainerAdjustment
from kata_bridge.sandboxes.core.sandbox import Appeared, sandbox_of
from kata_bridge.sandboxes.nri_source import observation_of
from kata_bridge.start_gate import gate
from kata_bridge.start_gate.gate import BoundedWait
from kata_bridge.ttrpc.status import TtrpcError
from tenancy import keys
from tests.functional.kata_bridge.served_bridge import DEADLINE_S
from tests.functional.kata_bridge.start_gate.gated_node import (
    NO_RESOLVER,
    OTHER,
    RETRIES,
    TEXT,
    GatedNode,
    content,
    gated,
    pod,
)
from tests.waiting import until

pytestmark = pytest.mark.asyncio


async def test_a_guest_is_blocked_until_rules_and_resolver_are_in(node: GatedNode) -> None:
    async with FakeKata(node.short_dir, FakeTables(), sandbox_id="s1"):
        web = pod("s1", "kata")
        await node.runtime.run_pod(web)
        await until(lambda: node.bridge.guests.drivers["s1"].channel_name == "shim")
        why = await node.why(web)
        assert why == (
            "waiting: the Services of network default are not synced: kubeproxy-ext has not submitted them"
            f" yet; {NO_RESOLVER} {RETRIES}"
        )
        (pod_status,) = node.blocked()
        assert pod_status["pod"] == "enforced/pod-s1"
        assert (pod_status["containers"], pod_status["message"]) == (["main"], why)
        await node.push("s1")
        assert await node.why(web) == f"waiting: {NO_RESOLVER} {RETRIES}"
        result = await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
        assert result.code is ResultCode.APPLIED
        assert node.blocked() == []
        assert await node.start(web) == ContainerAdjustment(mounts=(node.mount(web),))
        assert content(node.mount(web)) == TEXT
        assert node.metric("vcnode_katabridge_needs_met_seconds_count") == 1


async def test_an_unreachable_guest_blocks_further_containers(node: GatedNode) -> None:
    tables = FakeTables()
    async with FakeKata(node.short_dir, tables, sandbox_id="s1") as kata:
        web = pod("s1", "kata")
        await node.runtime.run_pod(web)
        await node.push("s1")
        await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
        await node.start(web)
        # Its shim and its agent are gone, so the guest's rules are unknown.
        await kata.shim.__aexit__(None, None, None)
        await kata.agent.__aexit__(None, None, None)
        driver = node.bridge.guests.drivers["s1"]
        await until(lambda: driver.machine.observed is None)
        assert await node.why(web) == (
            "waiting: the pod's guest cannot be reached, so the Services of network default are not applied"
            f" {RETRIES}"
        )


async def test_a_runc_pod_is_blocked_by_its_resolver_alone(node: GatedNode) -> None:
    web, early = pod("s1"), pod("s2")
    await node.runtime.run_pod(web)
    assert NO_RESOLVER in await node.why(web)
    message = "network default is not ready: it has no DNS server yet"
    await node.client.set_resolv_conf(SetResolvConfRequest("", "", wait_message=message, pod_uid="uid-s1"))
    assert await node.why(web) == f"waiting: {message} {RETRIES}"
    await node.client.set_resolv_conf(SetResolvConfRequest("", TEXT, pod_uid="uid-s1"))
    assert (await node.start(web)).mounts == (node.mount(web),)
    assert (
        await node.client.set_resolv_conf(SetResolvConfRequest("", OTHER, pod_uid="uid-s2"))
    ).code is ResultCode.APPLIED
    await node.runtime.run_pod(early)
    assert (await node.start(early)).mounts == (node.mount(early),)
    assert content(node.mount(early)) == OTHER


async def test_a_resolver_may_come_before_nri_reports_the_sandbox(node: GatedNode) -> None:
    """A list of the CRI may come first: after our restart NRI waits behind containers that end slowly."""
    async with FakeKata(node.short_dir, FakeTables(), sandbox_id="s1"):
        web = pod("s1", "kata")
        node.bridge.guests.update([Appeared(sandbox_of(observation_of(web)))])
        await node.push("s1")
        await node.client.set_resolv_conf(
            SetResolvConfRequest("s1", "", wait_message="network default is not ready")
        )
        await node.runtime.run_pod(web)
        assert "network default is not ready" in await node.why(web)
        await node.runtime.stop_pod(web)
        again = dataclasses.replace(web, id="s2")
    async with FakeKata(node.short_dir, FakeTables(), sandbox_id="s2"):
        node.bridge.guests.update([Appeared(sandbox_of(observation_of(again)))])
        await node.push("s2")
        await node.client.set_resolv_conf(SetResolvConfRequest("s2", TEXT))
        await node.runtime.run_pod(again)
        assert (await node.start(again)).mounts == (node.mount(again),)


async def test_pods_without_tenant_and_in_the_host_network_start(node: GatedNode) -> None:
    for each in (
        pod("s1", tenant=""),
        pod("s2", "kata", tenant=""),
        pod("s3", linux=None),
        pod("s4", tenant="", annotations={keys.NETWORK_READINESS: "false"}),
    ):
        await node.runtime.run_pod(each)
        assert await node.start(each) == ContainerAdjustment()


async def test_invalid_ownership_annotations_block(node: GatedNode) -> None:
    odd = pod("s1", annotations={keys.CLUSTER: "../x"})
    await node.runtime.run_pod(odd)
    assert "its ownership annotations are invalid" in await node.why(odd)


async def test_policies_warn_and_off_block_nothing(node: GatedNode) -> None:
    warned, ungated = pod("s1", namespace="warned"), pod("s2", namespace="open")
    for each in (warned, ungated):
        await node.runtime.run_pod(each)
        assert await node.start(each) == ContainerAdjustment()
    assert node.metric("vcnode_katabridge_warned_starts_total") == 1
    assert node.metric("vcnode_katabridge_blocked_starts_total") == 0
    for each in (warned, ungated):
        await node.client.set_resolv_conf(SetResolvConfRequest(each.id, TEXT))
        assert (await node.start(each)).mounts == (node.mount(each),)
    assert node.metric("vcnode_katabridge_warned_starts_total") == 1


async def test_without_api_server_an_unready_network_denies_sandboxes(node: GatedNode) -> None:
    """The runtime keeps the annotation of the sandbox's start, so each try needs a new sandbox."""
    web = pod("s1", annotations={keys.NETWORK_READINESS: "false"})
    with pytest.raises(TtrpcError, match="network default is not ready for this pod"):
        await node.runtime.run_pod(web)
    ready = pod("s2", annotations={keys.NETWORK_READINESS: "true"})
    await node.runtime.run_pod(ready)
    await node.client.set_resolv_conf(SetResolvConfRequest("s2", TEXT))
    await node.start(ready)


async def test_a_young_sandbox_is_waited_for_briefly(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for this client on a busy machine.
    monkeypatch.setattr(gate, "WAIT_S", gate.WAIT_BURST_S)
    is_waiting = asyncio.Event()
    wait = BoundedWait.wait

    async def recorded(bounded: BoundedWait, event: asyncio.Event) -> None:
        is_waiting.set()
        await wait(bounded, event)

    monkeypatch.setattr(BoundedWait, "wait", recorded)
    async with gated(short_dir) as node:
        web = pod("s1")
        await node.runtime.run_pod(web)
        starting = asyncio.gather(node.start(web))
        async with asyncio.timeout(DEADLINE_S):
            await is_waiting.wait()
        await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
        assert (await starting)[0].mounts == (node.mount(web),)
        assert node.metric("vcnode_katabridge_blocked_starts_total") == 0


async def test_waiting_for_lost_guests_is_bounded(node: GatedNode) -> None:
    """All calls of the runtime wait for each of ours."""
    loop = asyncio.get_running_loop()
    lost = [pod(f"s{number}") for number in range(60)]
    for each in lost:
        await node.runtime.run_pod(each)
    began_s = loop.time()
    for each in lost:
        await node.why(each)
    took_s = loop.time() - began_s
    assert took_s < gate.WAIT_BURST_S + 60 * gate.WAIT_S / 2
