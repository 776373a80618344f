# SPDX-License-Identifier: Apache-2.0
"""Discovery against a runtime on real sockets: NRI and CRI, that come and go."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio

from daemonkit.tasks import Tasks
from devkit.kata.fake_cri import IPS, NETNS, FakeCri
from devkit.kata.fake_runtime import FakeRuntime
from kata_bridge.cri.client import CriClient
from kata_bridge.cri.messages import PodSandbox as CriSandbox
from kata_bridge.cri.messages import PodSandboxMetadata, PodSandboxState
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.nri.events import SANDBOXES
from kata_bridge.nri.messages import Container, LinuxNamespace, LinuxPodSandbox, PodSandbox
from kata_bridge.nri.plugin import Plugin
from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox, SandboxChange
from kata_bridge.sandboxes.cri_source import CriLister
from kata_bridge.sandboxes.discovery import Discovery
from kata_bridge.sandboxes.file_source import GuestDirectory
from kata_bridge.sandboxes.nri_source import NriSource
from tests.waiting import until

pytestmark = pytest.mark.asyncio

POD = PodSandbox(
    id="s1",
    name="web",
    uid="u1",
    namespace="vc-a-shop",
    runtime_handler="kata",
    linux=LinuxPodSandbox((LinuxNamespace("network", "/run/netns/one"),)),
    pid=7,
    ips=("10.1.0.5",),
)
LISTED = CriSandbox("s1", PodSandboxMetadata("web", "u1", "vc-a-shop", 0), runtime_handler="kata")


@dataclass
class ReportedChanges:
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    changes: int = 0

    def record(self, changes: Iterable[SandboxChange]) -> None:
        for change in changes:
            self.changes += 1
            if isinstance(change, Appeared):
                self.sandboxes[change.sandbox.id] = change.sandbox
            else:
                del self.sandboxes[change.id]


@dataclass
class DiscoveryNode:
    directory: Path
    discovery: Discovery
    nri: FakeRuntime
    cri: FakeCri
    reported: ReportedChanges
    plugin: Plugin

    @property
    def sandboxes(self) -> dict[str, Sandbox]:
        return self.reported.sandboxes


@asynccontextmanager
async def node(
    directory: Path, *, has_nri: bool = True, has_cri: bool = True
) -> AsyncIterator[DiscoveryNode]:
    tasks, cri, reported = Tasks("test"), FakeCri(directory / "cri.sock"), ReportedChanges()
    async with AsyncExitStack() as stack:
        client = CriClient(directory / "cri.sock")
        stack.push_async_callback(client.close)
        discovery = Discovery(
            reported.record,
            lambda: None,
            KataBridgeMetrics(),
            has_nri=has_nri,
            lister=CriLister(client) if has_cri else None,
            directory=None,
            interval_s=0.1,
        )
        runtime = FakeRuntime(directory / "nri.sock")
        plugin = Plugin(directory / "nri.sock", "vcnode", "50", NriSource(discovery), SANDBOXES)
        stack.push_async_callback(tasks.close, 2.0)
        tasks.spawn(discovery.run(), "discovery")
        if has_nri:
            tasks.spawn(plugin.run(), "nri")
        yield DiscoveryNode(directory, discovery, runtime, cri, reported, plugin)


@pytest_asyncio.fixture
async def empty(tmp_path: Path) -> AsyncIterator[DiscoveryNode]:
    async with node(tmp_path) as made:
        yield made


async def test_nri_reports_at_once_and_lists_revert_nothing(empty: DiscoveryNode) -> None:
    async with empty.nri, empty.cri:
        await empty.nri.wait_registered()
        await empty.nri.run_pod(POD)
        await until(lambda: "s1" in empty.sandboxes)
        assert empty.sandboxes["s1"].netns == "/run/netns/one"
        # containerd lists it only after the hook has returned.
        count = empty.cri.lists
        await until(lambda: empty.cri.lists > count + 2)
        assert "s1" in empty.sandboxes
        empty.cri.sandboxes = {"s1": LISTED}
        count = empty.cri.lists
        await until(lambda: empty.cri.lists > count + 2)
        assert empty.cri.status_requests == [], "NRI has reported its details"
        await empty.nri.stop_pod(POD)
        await until(lambda: not empty.sandboxes)
        count = empty.cri.lists
        await until(lambda: empty.cri.lists > count + 2)
        assert not empty.sandboxes, "a list that still has it does not bring it back"


async def test_nri_source_allows_containers(empty: DiscoveryNode) -> None:
    async with empty.nri:
        await empty.nri.wait_registered()
        await empty.nri.run_pod(POD)
        await empty.nri.create_container(POD, Container("c1", "s1", "app"))


async def test_known_sandboxes_stay_while_the_runtime_is_away(empty: DiscoveryNode) -> None:
    async with empty.nri, empty.cri:
        await empty.nri.wait_registered()
        await empty.nri.run_pod(POD)
        empty.cri.sandboxes = {"s1": LISTED}
        await until(lambda: empty.cri.lists > 3)
    await until(lambda: "cri" in empty.discovery.problems)
    assert "s1" in empty.sandboxes
    other = replace(POD, id="s2", uid="u2", name="db")
    dead = replace(POD, pid=0, linux=None)
    empty.nri.pods = [dead, other]
    empty.cri.sandboxes = {"s1": replace(LISTED, state=PodSandboxState.SANDBOX_NOTREADY)}
    async with empty.nri, empty.cri:
        await until(lambda: set(empty.sandboxes) == {"s2"})
        await until(lambda: not empty.discovery.problems)


async def test_without_nri_lists_and_statuses_suffice(tmp_path: Path) -> None:
    async with node(tmp_path, has_nri=False) as here, here.cri:
        here.cri.sandboxes = {"s1": LISTED}
        await until(lambda: "s1" in here.sandboxes)
        assert here.discovery.has_synced
        found = here.sandboxes["s1"]
        assert (found.netns, found.ips) == (NETNS, IPS)
        count = here.cri.lists
        await until(lambda: here.cri.lists > count + 2)
        assert (here.cri.status_requests, here.reported.changes) == (["s1"], 1)
        here.cri.sandboxes = {}
        await until(lambda: not here.sandboxes)


async def test_sandboxes_sync_after_each_source_reported(empty: DiscoveryNode) -> None:
    await until(lambda: "cri" in empty.discovery.problems)
    assert not empty.discovery.has_synced
    async with empty.cri:
        await until(lambda: empty.discovery.has_synced)


async def test_guests_of_files_appear_and_vanish(tmp_path: Path) -> None:
    changes: list[SandboxChange] = []
    files = tmp_path / "guests"
    discovery = Discovery(
        changes.extend,
        lambda: None,
        KataBridgeMetrics(),
        has_nri=False,
        lister=None,
        directory=GuestDirectory(files),
        interval_s=10.0,
    )
    tasks = Tasks("test")
    tasks.spawn(discovery.run(), "discovery")
    try:
        await until(lambda: "directory" in discovery.problems)
        assert not discovery.has_synced, "a missing directory is not an empty one"
        files.mkdir()
        await until(lambda: discovery.has_synced)
        head = "apiVersion: vcnode.io/v1alpha1\nkind: Guest\n"
        (files / "a.yaml").write_text(f"{head}namespace: n\nname: p\n")
        await until(lambda: len(changes) == 1)
        (files / "a.yaml").write_text(f"{head}namespace: n\nname: p\nnets: [x]\n")
        await until(lambda: "file a.yaml" in discovery.problems)
        assert len(changes) == 1, "its guest stays as it was"
        (files / "a.yaml").unlink()
        await until(lambda: len(changes) == 2)
    finally:
        await tasks.close(2.0)


async def test_sources_that_are_away_name_socket_and_remedy(empty: DiscoveryNode) -> None:
    directory = empty.directory
    await until(lambda: "cri" in empty.discovery.faults() and empty.plugin.failure() is not None)
    fault, seconds = empty.discovery.faults()["cri"]
    assert fault.text == f"CRI {directory}/cri.sock: ListPodSandbox: no such file or directory"
    assert fault.remedy.startswith("start the container runtime; check sandboxes.cri.socket")
    assert seconds >= 0.0
    failure = empty.plugin.failure()
    assert failure is not None
    nri, _ = failure
    assert nri.text == f"NRI {directory}/nri.sock: no such file or directory"
    assert nri.remedy == "start the container runtime and enable NRI in it, or remove sandboxes.nri"
    async with empty.nri, empty.cri:
        await empty.nri.wait_registered()
        await until(lambda: not empty.discovery.faults())
        await until(lambda: empty.plugin.failure() is None)
