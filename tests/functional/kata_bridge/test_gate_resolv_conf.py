# SPDX-License-Identifier: Apache-2.0
"""What the gate is told of a pod's resolv.conf, and the file that containers get."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kata_bridge.api.client import BridgeRefuses
from kata_bridge.api.messages import ResultCode
from kata_bridge.nri.messages import ContainerAdjustment, Mount
from tests.functional.kata_bridge.gated_node import (
    NOBODY_SAID,
    OTHER,
    TEXT,
    Node,
    content,
    gated,
    inode_of,
    pod,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def node(place: Path) -> AsyncIterator[Node]:
    async with gated(place) as running:
        yield running


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


async def test_another_plugin_that_takes_the_mount_is_found_out(node: Node) -> None:
    web = pod("s1")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf("s1", TEXT)
    theirs = Mount("/etc/resolv.conf", "bind", "/theirs", ("rbind",))
    node.runtime.adjust = lambda adjustment: ContainerAdjustment(mounts=(theirs,))
    assert "another plugin of the node has replaced its resolv.conf" in await node.why(web)
    node.runtime.adjust = None
    await node.start(web)


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


async def test_a_reason_to_wait_writes_nothing_where_there_is_nothing_to_hold(node: Node) -> None:
    # A guest that the gate does not know, as those out of files: an empty text is no file.
    result = await node.client.set_resolv_conf("made-by-hand", "", waits="network red does not exist")
    assert result.code is ResultCode.UNCHANGED
    assert (await node.client.set_resolv_conf("made-by-hand", TEXT)).code is not ResultCode.UNCHANGED
