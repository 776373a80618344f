# SPDX-License-Identifier: Apache-2.0
"""A client of the container runtime that reads its sandboxes."""

from pathlib import Path
from typing import Self, TypeVar

import grpc
import grpc.aio

from bridge_api.rpc import UnaryMethod
from daemonkit import os_errors
from daemonkit.remedies import Fault, Hop, HopKind
from kata_bridge.cri.messages import (
    LIST_POD_SANDBOX,
    POD_SANDBOX_STATUS,
    VERSION,
    ListPodSandboxRequest,
    PodSandbox,
    PodSandboxStatusRequest,
    PodSandboxStatusResponse,
    VersionRequest,
    VersionResponse,
)

Q = TypeVar("Q")
A = TypeVar("A")

# Runtimes answer lists in milliseconds; one that is busy with disks may take seconds.
TIMEOUT_S = 5.0

# As the kubelet: a list of all sandboxes with their annotations can exceed gRPC's 4 MiB.
_MAX_MESSAGE_BYTES = 16 << 20

CRI_HOP = Hop(HopKind.CRI, "CRI", "sandboxes.cri.socket")

_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # A runtime that restarts is away for some two seconds; the default waits up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Otherwise the socket's path, percent-encoded, which servers in Go refuse.
    ("grpc.default_authority", "localhost"),
    # Each client has and closes a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
)


class CriError(Exception):
    """The runtime does not answer (`is_away`), or refuses; `fault` has what to do."""

    def __init__(self, text: str, fault: Fault, *, is_away: bool) -> None:
        super().__init__(text)
        self.fault = fault
        self.is_away = is_away


class CriClient:
    """Calls to the runtime that listens on `socket`. Connects at the first call, and again when lost."""

    def __init__(self, socket: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls in flight fail."""
        await self._channel.close()

    async def version(self) -> VersionResponse:
        """Return the runtime's name and version. Raises `CriError`."""
        return await self._call(VERSION, VersionRequest())

    async def sandboxes(self) -> tuple[PodSandbox, ...]:
        """Return all sandboxes, also those that are stopped and not yet removed. Raises `CriError`."""
        return (await self._call(LIST_POD_SANDBOX, ListPodSandboxRequest())).items

    async def sandbox(self, sandbox_id: str, *, verbose: bool = False) -> PodSandboxStatusResponse | None:
        """Return the status of a sandbox, None for an unknown id. Raises `CriError`."""
        try:
            return await self._call(POD_SANDBOX_STATUS, PodSandboxStatusRequest(sandbox_id, verbose))
        except _NotFoundError:
            return None

    async def _call(self, method: UnaryMethod[Q, A], request: Q) -> A:
        try:
            return await method.stub(self._channel)(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or error.code().name
            text = f"{self._socket}: {method.name}: {details}"
            # Of the operating system's errors gRPC keeps the text alone.
            known, cause = os_errors.describe_text(details)
            fault = CRI_HOP.fault(cause, f"{method.name}: {known}", str(self._socket))
            if code is grpc.StatusCode.NOT_FOUND:
                raise _NotFoundError(text, fault, is_away=False) from None
            is_away = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            raise CriError(text, fault, is_away=is_away) from None


class _NotFoundError(CriError):
    pass
