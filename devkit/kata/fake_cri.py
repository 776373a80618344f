# SPDX-License-Identifier: Apache-2.0
"""A fake of a container runtime's CRI: it lists sandboxes and has their statuses.

`tests/cri_contract.py` holds for it and, in the ring `tests/k8s`, for the real containerd.
"""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from bridge_api.rpc import service
from kata_bridge.cri.messages import (
    LIST_POD_SANDBOX,
    POD_SANDBOX_STATUS,
    VERSION,
    LinuxPodSandboxStatus,
    ListPodSandboxRequest,
    ListPodSandboxResponse,
    Namespace,
    NamespaceMode,
    NamespaceOption,
    PodIP,
    PodSandbox,
    PodSandboxNetworkStatus,
    PodSandboxStatus,
    PodSandboxStatusRequest,
    PodSandboxStatusResponse,
    VersionRequest,
    VersionResponse,
)

NETNS = "/run/netns/two"
IPS = ("10.1.0.6", "fd00::6")


@dataclass(slots=True)
class FakeCri:
    """A runtime on the unix socket `path`; `async with` serves it, also again.

    `sandboxes` by their ids: all have the network namespace `NETNS` and the addresses `IPS`.
    """

    path: Path
    sandboxes: dict[str, PodSandbox] = field(default_factory=dict)
    is_host_network: bool = False
    delay_s: float = 0.0
    version: str = "v2.2.0"
    lists: int = 0
    status_requests: list[str] = field(default_factory=list)
    _server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        handlers = service(
            VERSION.bind(self._version),
            LIST_POD_SANDBOX.bind(self._list),
            POD_SANDBOX_STATUS.bind(self._status),
        )
        self._server.add_generic_rpc_handlers((handlers,))
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop(0)

    async def _version(self, _: VersionRequest, __: object) -> VersionResponse:
        return VersionResponse("containerd", self.version)

    async def _list(self, _: ListPodSandboxRequest, __: object) -> ListPodSandboxResponse:
        self.lists += 1
        await asyncio.sleep(self.delay_s)
        return ListPodSandboxResponse(tuple(self.sandboxes.values()))

    async def _status(self, request: PodSandboxStatusRequest, context: Any) -> PodSandboxStatusResponse:
        self.status_requests.append(request.pod_sandbox_id)
        found = self.sandboxes.get(request.pod_sandbox_id)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "an error occurred when try to find sandbox")
            raise AssertionError
        mode = NamespaceMode.NODE if self.is_host_network else NamespaceMode.POD
        first, *others = IPS
        status = PodSandboxStatus(
            found.id,
            found.metadata,
            found.state,
            found.created_at,
            network=PodSandboxNetworkStatus(first, tuple(PodIP(each) for each in others)),
            linux=LinuxPodSandboxStatus(Namespace(NamespaceOption(mode))),
            labels=found.labels,
            annotations=found.annotations,
            runtime_handler=found.runtime_handler,
        )
        spec = {"linux": {"namespaces": [{"type": "network", "path": NETNS}]}} if request.verbose else None
        return PodSandboxStatusResponse(status, {"info": json.dumps({"runtimeSpec": spec})})
