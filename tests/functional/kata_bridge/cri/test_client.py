# SPDX-License-Identifier: Apache-2.0
"""The client and a small runtime on a real unix socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge_api.rpc import service
from kata_bridge.cri.client import CriClient, CriError
from kata_bridge.cri.messages import (
    LIST_POD_SANDBOX,
    POD_SANDBOX_STATUS,
    ListPodSandboxRequest,
    ListPodSandboxResponse,
    PodSandbox,
    PodSandboxMetadata,
    PodSandboxState,
    PodSandboxStatus,
    PodSandboxStatusRequest,
    PodSandboxStatusResponse,
)
from tests.waiting import until_it_succeeds

RpcContext = Any

READY = PodSandbox(
    "s1",
    PodSandboxMetadata("web", "uid", "default", 1),
    created_at=1_700_000_000_000_000_000,
    labels={"app": "web"},
    annotations={"note": "x" * 6_000_000},
    runtime_handler="kata",
)
STOPPED = PodSandbox("s0", PodSandboxMetadata("web", "uid", "default"), PodSandboxState.SANDBOX_NOTREADY)


class Runtime:
    """Two sandboxes of one pod, the newer of them ready."""

    def __init__(self) -> None:
        self.delay_s = 0.0

    async def list(self, request: ListPodSandboxRequest, context: RpcContext) -> ListPodSandboxResponse:
        await asyncio.sleep(self.delay_s)
        return ListPodSandboxResponse((READY, STOPPED))

    async def status(self, request: PodSandboxStatusRequest, context: RpcContext) -> PodSandboxStatusResponse:
        if request.pod_sandbox_id != "s1":
            await context.abort(grpc.StatusCode.NOT_FOUND, "an error occurred when try to find sandbox")
        return PodSandboxStatusResponse(PodSandboxStatus("s1"), {"info": "{}"} if request.verbose else {})


@asynccontextmanager
async def serving(path: Path, runtime: Runtime) -> AsyncIterator[None]:
    server = grpc.aio.server()
    handlers = service(
        LIST_POD_SANDBOX.bind(runtime.list),
        POD_SANDBOX_STATUS.bind(runtime.status),
    )
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@pytest.mark.asyncio
async def test_calls_of_the_cri(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    async with serving(path, Runtime()), CriClient(path) as cri:
        # 6 MB: more than gRPC's default limit.
        assert await cri.sandboxes() == (READY, STOPPED)
        assert await cri.sandbox("s1", verbose=True) == PodSandboxStatusResponse(
            PodSandboxStatus("s1"), {"info": "{}"}
        )
        assert await cri.sandbox("s1") == PodSandboxStatusResponse(PodSandboxStatus("s1"))
        assert await cri.sandbox("gone") is None


@pytest.mark.asyncio
async def test_an_absent_or_slow_runtime_is_away(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    runtime = Runtime()
    async with CriClient(path, timeout_s=0.5) as cri:
        with pytest.raises(CriError, match=r"cri\.sock: ListPodSandbox: ") as away:
            await cri.sandboxes()
        assert away.value.is_away
        async with serving(path, runtime):
            await until_it_succeeds(cri.sandboxes, CriError)
            runtime.delay_s = 5
            with pytest.raises(CriError, match="ListPodSandbox: Deadline Exceeded") as slow:
                await cri.sandboxes()
            assert slow.value.is_away
        # It restarts.
        runtime.delay_s = 0
        async with serving(path, runtime):
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
