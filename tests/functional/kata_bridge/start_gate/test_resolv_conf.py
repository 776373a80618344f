# SPDX-License-Identifier: Apache-2.0
"""SetResolvConf, and the resolv.conf that containers get."""

import dataclasses
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bridge_api.client import BridgeRejectedError
from bridge_api.messages import ResultCode, SetResolvConfRequest
from devkit.kata.fake_runtime import FakeRuntime
from kata_bridge.nri.messages import ContainerAdjustment, Mount
from tenancy import keys
from tests.functional.kata_bridge.start_gate.gated_node import (
    NO_RESOLVER,
    OTHER,
    TEXT,
    GatedNode,
    configuration,
    content,
    inode_of,
    pod,
    serving,
)

pytestmark = pytest.mark.asyncio


async def test_resolv_conf_is_rewritten_in_place_until_removal(node: GatedNode) -> None:
    web = pod("s1")
    await node.client.set_resolv_conf(SetResolvConfRequest("", TEXT, pod_uid="uid-s1"))
    await node.runtime.run_pod(web)
    (mount,) = (await node.start(web)).mounts
    inode = inode_of(mount)
    assert (await node.client.set_resolv_conf(SetResolvConfRequest("s1", OTHER))).code is ResultCode.APPLIED
    assert (content(mount), inode_of(mount)) == (OTHER, inode)
    assert (await node.client.set_resolv_conf(SetResolvConfRequest("s1", OTHER))).code is ResultCode.UNCHANGED
    # Running containers keep their file; new ones are blocked.
    await node.client.set_resolv_conf(SetResolvConfRequest("s1", "", wait_message="the network is gone"))
    assert content(mount) == OTHER
    assert "the network is gone" in await node.why(web)
    await node.client.set_resolv_conf(SetResolvConfRequest("s1", ""))
    assert NO_RESOLVER in await node.why(web)
    await node.runtime.stop_pod(web)
    assert inode_of(mount) is None
    assert (await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))).code is ResultCode.GONE


async def test_a_resolver_unblocks_no_sandbox_of_another_network(short_dir: Path) -> None:
    """The pod's label changed, and dnsconfig is down while the pod gets its second sandbox."""
    one = dataclasses.replace(pod("s1"), labels={keys.ARKTOS_NETWORK: "blue"})
    two = dataclasses.replace(pod("s2"), uid=one.uid, name=one.name, labels={keys.ARKTOS_NETWORK: "green"})
    config = configuration(short_dir)
    async with FakeRuntime(short_dir / "nri.sock") as runtime, AsyncExitStack() as stack:
        node = await stack.enter_async_context(serving(config, short_dir, runtime))
        await runtime.run_pod(one)
        await node.client.set_resolv_conf(SetResolvConfRequest("", TEXT, pod_uid=one.uid))
        assert content((await node.start(one)).mounts[0]) == TEXT
        await stack.aclose()
        node = await stack.enter_async_context(serving(config, short_dir, runtime))
        await runtime.stop_pod(one)
        await runtime.run_pod(two)
        assert "its resolver is for another network; waiting for dnsconfig" in await node.why(two)
        await node.client.set_resolv_conf(SetResolvConfRequest("", OTHER, pod_uid=one.uid))
        assert content((await node.start(two)).mounts[0]) == OTHER


async def test_a_container_with_its_own_resolv_conf_keeps_it(node: GatedNode) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    own = Mount("/etc/resolv.conf", "bind", "/var/lib/kubelet/pods/u/volume-subpaths/c/main/0", ("rbind",))
    assert await node.start(web, "main", own) == ContainerAdjustment()
    await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
    assert await node.start(web, "main", own) == ContainerAdjustment()


async def test_another_plugins_resolv_conf_is_rejected(node: GatedNode) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
    theirs = Mount("/etc/resolv.conf", "bind", "/theirs", ("rbind",))
    node.runtime.adjust = lambda adjustment: ContainerAdjustment(mounts=(theirs,))
    assert "another NRI plugin of the node replaced its resolv.conf" in await node.why(web)
    node.runtime.adjust = None
    await node.start(web)


async def test_the_api_refuses_invalid_requests(node: GatedNode) -> None:
    await node.runtime.run_pod(pod("s1"))
    for guest, uid, text, waits in (
        ("", "u" * 200, TEXT, ""),
        ("", "u", TEXT, "w" * 5000),
        ("", "uid-s1", "\0", ""),
    ):
        with pytest.raises(BridgeRejectedError):
            await node.client.set_resolv_conf(
                SetResolvConfRequest(guest, text, wait_message=waits, pod_uid=uid)
            )
    for networks in (("n",) * 65, ("",), ("n" * 254,)):
        with pytest.raises(BridgeRejectedError):
            await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT, networks=networks))


async def test_a_full_disk_blocks_containers_that_need_a_file(
    node: GatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))

    def full(*_: object, **__: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("guest_agent.resolv_conf.write", full)
        assert "its resolv.conf cannot be written on the node" in await node.why(web)
    await node.start(web)


async def test_a_wait_message_for_an_ungated_guest_writes_nothing(node: GatedNode) -> None:
    # The gate does not know guests from files; an empty text writes no file.
    result = await node.client.set_resolv_conf(
        SetResolvConfRequest("made-by-hand", "", wait_message="network red does not exist")
    )
    assert result.code is ResultCode.UNCHANGED
    assert (
        await node.client.set_resolv_conf(SetResolvConfRequest("made-by-hand", TEXT))
    ).code is not ResultCode.UNCHANGED
