# SPDX-License-Identifier: Apache-2.0
"""The plugin on a real socket, with fake runtimes of each age and quirk."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from daemonkit.tasks import Tasks
from devkit.kata.fake_runtime import FakeRuntime, RuntimeQuirks
from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.events import GATE, SANDBOXES, Event
from kata_bridge.nri.messages import Container, ContainerAdjustment, Mount, PodSandbox
from kata_bridge.nri.plugin import QUIET_S, Plugin
from kata_bridge.nri.session import NriSnapshot
from kata_bridge.ttrpc.status import TtrpcError
from tests.nri_contract import NriRecorder, check_life, check_registered, check_validated
from tests.waiting import until

TIMEOUT_S = 20.0
CONTAINER = Container("c", "p0", "nginx")


def pod(number: int, **more: str) -> PodSandbox:
    return PodSandbox(f"p{number}", f"web-{number}", f"uid-{number}", "default", labels=more)


class Watcher(NriRecorder):
    """It denies containers, and may be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.creation = Deny("not yet")
        self.called = asyncio.Event()
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        await super().run_pod_sandbox(pod)
        if self.is_slow:
            await asyncio.sleep(60)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        self.called.set()
        await self.may_respond.wait()
        return await super().create_container(pod, container)


@asynccontextmanager
async def plugin_on(path: Path, watcher: Watcher, events: frozenset[Event]) -> AsyncIterator[Plugin]:
    plugin = Plugin(path, "vcnode", "50", watcher, events)
    tasks = Tasks("test")
    tasks.spawn(plugin.run(), "plugin")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield plugin
    finally:
        assert await tasks.close(5) == ()


@pytest.mark.parametrize("is_admitted", [True, False])
@pytest.mark.asyncio
async def test_a_container_is_decided_before_the_plugin_stops(tmp_path: Path, *, is_admitted: bool) -> None:
    """Validation follows creation at once. Without the drain the pod's author reads `ttrpc: closed`."""
    watcher = Watcher()
    watcher.may_respond.clear()
    if is_admitted:
        watcher.creation = ContainerAdjustment(mounts=(Mount("/etc/resolv.conf"),))
    daemon, others = Tasks("daemon"), Tasks("others")
    async with (
        asyncio.timeout(TIMEOUT_S),
        FakeRuntime(tmp_path / "nri.sock", pods=[pod(0)]) as runtime,
    ):
        running = daemon.spawn(Plugin(runtime.path, "vcnode", "50", watcher, GATE).run(), "plugin")
        await runtime.wait_registered()
        creating = others.spawn(runtime.create_container(pod(0), CONTAINER), "create")
        await watcher.called.wait()
        running.cancel()
        # It is stopping, and receives nothing for much longer than its idle timeout.
        await asyncio.wait({running}, timeout=5 * QUIET_S)
        assert not running.done()
        watcher.may_respond.set()
        await asyncio.wait({running})
        if is_admitted:
            assert await creating == watcher.creation
        else:
            with pytest.raises(TtrpcError, match="not yet"):
                await creating
    assert (await daemon.close(5), await others.close(5)) == ((), ())


@pytest.mark.asyncio
async def test_wait_for_a_plugin_says_what_was_seen(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path / "nri.sock") as runtime:
        with pytest.raises(TimeoutError, match=r"within 0\.01 s, but 0 connections, 0 registrations"):
            await runtime.wait_registered(within_s=0.01)


@pytest.mark.parametrize("nri_version", ["v0.12.3", ""])
@pytest.mark.asyncio
async def test_sandbox_events_of_old_and_new_runtimes(tmp_path: Path, nri_version: str) -> None:
    watcher = Watcher()
    quirks = RuntimeQuirks(nri_version=nri_version)
    async with (
        FakeRuntime(tmp_path / "nri.sock", quirks, [pod(0)], [CONTAINER]) as runtime,
        plugin_on(runtime.path, watcher, SANDBOXES) as plugin,
    ):
        await runtime.wait_registered()
        assert check_registered(plugin, watcher) == NriSnapshot((pod(0),), (CONTAINER,))
        assert plugin.runtime == "containerd 2.4.2"
        await runtime.run_pod(pod(1))
        await runtime.stop_pod(pod(1))
        await runtime.remove_pod(pod(1))
    assert watcher.events == [("run", pod(1)), ("stop", pod(1)), ("remove", pod(1))]
    check_life(watcher, "web-1")


@pytest.mark.asyncio
async def test_a_synchronize_of_megabytes_is_sent_in_parts(tmp_path: Path) -> None:
    watcher = Watcher()
    pods = [pod(number, text="x" * 2000) for number in range(1000)]
    quirks = RuntimeQuirks(objects_in_a_message=700)
    async with (
        FakeRuntime(tmp_path / "nri.sock", quirks, list(pods)) as runtime,
        plugin_on(runtime.path, watcher, SANDBOXES),
    ):
        await runtime.wait_registered()
        await runtime.run_pod(pod(5000, text="x" * 2_000_000))
    assert watcher.snapshots == [NriSnapshot(tuple(pods), ())]
    assert watcher.names("run") == ["web-5000"]


@pytest.mark.asyncio
async def test_containers_are_denied_adjusted_and_validated(tmp_path: Path) -> None:
    watcher = Watcher()
    # More than a multiplexer reads at once.
    dns = ContainerAdjustment(mounts=(Mount("/etc/resolv.conf", "bind", "/run/" + "x" * 300_000, ("ro",)),))
    async with (
        FakeRuntime(tmp_path / "nri.sock") as runtime,
        plugin_on(runtime.path, watcher, SANDBOXES | GATE),
    ):
        await runtime.wait_registered()
        with pytest.raises(TtrpcError, match="FAILED_PRECONDITION: not yet"):
            await runtime.create_container(pod(0), CONTAINER)
        watcher.creation = dns
        assert await runtime.create_container(pod(0), CONTAINER) == dns
        check_validated(watcher, dns)
        watcher.validation = Deny("another plugin took its mount")
        with pytest.raises(TtrpcError, match="another plugin took its mount"):
            await runtime.create_container(pod(0), CONTAINER)
        assert runtime.connections == 1


@pytest.mark.asyncio
async def test_a_slow_handler_keeps_the_connection(tmp_path: Path) -> None:
    watcher = Watcher()
    watcher.is_slow = True
    async with (
        FakeRuntime(tmp_path / "nri.sock") as runtime,
        plugin_on(runtime.path, watcher, SANDBOXES),
    ):
        await runtime.wait_registered()
        await asyncio.gather(*(runtime.run_pod(pod(number)) for number in range(3)))
        assert (runtime.connections, len(watcher.events)) == (1, 3)


@pytest.mark.asyncio
async def test_a_lost_connection_reconnects_and_synchronizes(tmp_path: Path) -> None:
    watcher = Watcher()
    path = tmp_path / "nri.sock"
    async with plugin_on(path, watcher, SANDBOXES) as plugin:
        async with FakeRuntime(path) as runtime:
            await runtime.wait_registered()
            runtime.drop()
            started = time.monotonic()
            await runtime.wait_registered(2)
            assert time.monotonic() - started < 2
            await runtime.run_pod(pod(1))
        # It restarts as containerd does, with its sandboxes.
        await until(lambda: not plugin.is_connected)
        async with FakeRuntime(path, pods=[pod(1), pod(2)]) as runtime:
            await runtime.wait_registered()
            await runtime.run_pod(pod(3))
    assert [snapshot.pods for snapshot in watcher.snapshots] == [(), (), (pod(1), pod(2))]
    assert watcher.names("run") == ["web-1", "web-3"]


@pytest.mark.asyncio
async def test_a_runtime_that_drops_newer_events_gets_fewer_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = Watcher()
    quirks = RuntimeQuirks(valid_events=0x7FF)
    async with (
        FakeRuntime(tmp_path / "nri.sock", quirks) as runtime,
        plugin_on(runtime.path, watcher, SANDBOXES | GATE) as plugin,
    ):
        await runtime.wait_registered()
        assert runtime.connections == 2
        assert plugin.missing == {Event.VALIDATE_CONTAINER_ADJUSTMENT}
        # The next connection subscribes to all again: the drop may have been a restart.
        quirks.valid_events = 0x3FFF
        runtime.drop()
        await runtime.wait_registered(2)
        assert plugin.missing == frozenset()
    assert "has no ValidateContainerAdjustment" in capsys.readouterr().err


@pytest.mark.asyncio
async def test_a_refused_registration_is_logged_once_and_retried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = Watcher()
    quirks = RuntimeQuirks(refuses="a plugin of this name is there already")
    async with (
        FakeRuntime(tmp_path / "nri.sock", quirks) as runtime,
        plugin_on(runtime.path, watcher, SANDBOXES),
    ):
        await until(lambda: runtime.connections >= 3)
        quirks.refuses = ""
        await runtime.wait_registered()
    assert capsys.readouterr().err.count("a plugin of this name is there already") == 1


@pytest.mark.asyncio
async def test_a_server_that_speaks_no_nri_is_retried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nri.sock"
    connections = 0

    async def rubbish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_unix_server(rubbish, path),
        plugin_on(path, Watcher(), SANDBOXES) as plugin,
    ):
        await until(lambda: connections >= 2)
        assert not plugin.is_connected
    assert "cannot register as an NRI plugin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "index"), [("vc node", "50"), ("vcnode", "5"), ("vcnode", "500"), ("", "50")]
)
def test_an_invalid_plugin_name_or_index_is_refused(name: str, index: str) -> None:
    with pytest.raises(ValueError, match="no index and name"):
        Plugin(Path("/nowhere"), name, index, Watcher(), SANDBOXES)
