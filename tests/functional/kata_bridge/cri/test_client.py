# SPDX-License-Identifier: Apache-2.0
"""The client and a fake runtime on a real unix socket."""

from pathlib import Path

import grpc.aio
import pytest

from devkit.kata.fake_cri import IPS, NETNS, FakeCri
from kata_bridge.cri.client import CriClient, CriError
from kata_bridge.cri.messages import PodSandbox, PodSandboxMetadata, PodSandboxState
from tests.cri_contract import check_ready_sandbox
from tests.waiting import until_it_succeeds

READY = PodSandbox(
    "s1",
    PodSandboxMetadata("web", "uid", "default", 1),
    created_at=1_700_000_000_000_000_000,
    labels={"app": "web"},
    annotations={"note": "x" * 6_000_000},
    runtime_handler="kata",
)
STOPPED = PodSandbox("s0", PodSandboxMetadata("web", "uid", "default"), PodSandboxState.SANDBOX_NOTREADY)


def runtime(path: Path) -> FakeCri:
    """Two sandboxes of one pod, the newer of them ready."""
    return FakeCri(path, {each.id: each for each in (READY, STOPPED)})


@pytest.mark.asyncio
async def test_calls_of_the_cri(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    async with runtime(path), CriClient(path) as cri:
        # 6 MB: more than gRPC's default limit.
        assert await cri.sandboxes() == (READY, STOPPED)
        status, netns = await check_ready_sandbox(cri, READY.id)
        assert (status.ips, netns) == (IPS, NETNS)


@pytest.mark.asyncio
async def test_an_absent_or_slow_runtime_is_away(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    served = runtime(path)
    async with CriClient(path, timeout_s=0.5) as cri:
        with pytest.raises(CriError, match=r"cri\.sock: ListPodSandbox: ") as away:
            await cri.sandboxes()
        assert away.value.is_away
        async with served:
            await until_it_succeeds(cri.sandboxes, CriError)
            served.delay_s = 5
            with pytest.raises(CriError, match="ListPodSandbox: Deadline Exceeded") as slow:
                await cri.sandboxes()
            assert slow.value.is_away
        # It restarts.
        served.delay_s = 0
        async with served:
            await until_it_succeeds(cri.sandboxes, CriError)


@pytest.mark.asyncio
async def test_a_runtimes_refusal_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    async with CriClient(path) as cri:
        with pytest.raises(CriError) as refused:
            await cri.sandboxes()
        assert not refused.value.is_away
    await server.stop(None)
