# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and containers straight through the CRI, as the kubelet makes them. Test side only.

The fields are those of CRI v1's protocol file, of which these are a small part.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from daemonkit.protobuf import (
    INT32,
    INT64,
    STRING,
    OpenEnum,
    decode,
    encode,
    enumeration,
    field,
    map_of,
    message_of,
    repeated,
)
from kata_bridge.cri.messages import PodSandboxMetadata
from tests.k8s.ring.processes import wait_for

A = TypeVar("A")

_CALL_S = 30.0


class CriContainerState(OpenEnum):
    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class LinuxPodSandboxConfig:
    cgroup_parent: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class PodSandboxConfig:
    metadata: PodSandboxMetadata | None = field(1, message_of(PodSandboxMetadata))
    hostname: str = field(2, STRING)
    log_directory: str = field(3, STRING)
    labels: Mapping[str, str] = field(6, map_of(STRING))
    annotations: Mapping[str, str] = field(7, map_of(STRING))
    linux: LinuxPodSandboxConfig | None = field(8, message_of(LinuxPodSandboxConfig))


@dataclass(frozen=True, slots=True)
class RunPodSandboxRequest:
    config: PodSandboxConfig | None = field(1, message_of(PodSandboxConfig))
    runtime_handler: str = field(2, STRING)


@dataclass(frozen=True, slots=True)
class PodSandboxId:
    """RunPodSandbox's reply; the requests to stop and to remove one are alike."""

    pod_sandbox_id: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class ContainerMetadata:
    name: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class ImageSpec:
    image: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    metadata: ContainerMetadata | None = field(1, message_of(ContainerMetadata))
    image: ImageSpec | None = field(2, message_of(ImageSpec))
    command: tuple[str, ...] = field(3, repeated(STRING))
    log_path: str = field(11, STRING)


@dataclass(frozen=True, slots=True)
class CreateContainerRequest:
    pod_sandbox_id: str = field(1, STRING)
    config: ContainerConfig | None = field(2, message_of(ContainerConfig))
    sandbox_config: PodSandboxConfig | None = field(3, message_of(PodSandboxConfig))


@dataclass(frozen=True, slots=True)
class ContainerId:
    """CreateContainer's reply; the requests to start one and of its status are alike."""

    container_id: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """Times in nanoseconds since 1970."""

    id: str = field(1, STRING)
    metadata: ContainerMetadata | None = field(2, message_of(ContainerMetadata))
    state: CriContainerState = field(3, enumeration(CriContainerState))
    started_at: int = field(5, INT64)
    finished_at: int = field(6, INT64)
    exit_code: int = field(7, INT32)


@dataclass(frozen=True, slots=True)
class ContainerStatusResponse:
    status: ContainerStatus | None = field(1, message_of(ContainerStatus))


@dataclass(frozen=True, slots=True)
class EmptyMessage:
    pass


@dataclass(frozen=True, slots=True)
class FinishedContainer:
    """A container that has run to its end: times since 1970, and its output."""

    sandbox_up_s: float
    started_at_s: float
    exit_code: int
    text: str


class CriClient:
    """A hand on the runtime at `socket`."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(
            f"unix:{socket}", options=[("grpc.default_authority", "localhost")]
        )

    def close(self) -> None:
        self._channel.close()

    def run_pod(self, config: PodSandboxConfig, handler: str) -> str:
        """Start a sandbox and return its id."""
        return self._call("RunPodSandbox", RunPodSandboxRequest(config, handler), PodSandboxId).pod_sandbox_id

    def run_container(
        self, sandbox: str, config: PodSandboxConfig, image: str, *command: str
    ) -> FinishedContainer:
        """Run a container of that sandbox to its end, with nothing in between that takes time."""
        up_s = time.time()
        name = f"c-{up_s:.6f}"
        made = self._call(
            "CreateContainer",
            CreateContainerRequest(
                sandbox,
                ContainerConfig(ContainerMetadata(name), ImageSpec(image), command, f"{name}.log"),
                config,
            ),
            ContainerId,
        )
        self._call("StartContainer", made, EmptyMessage)

        def ended() -> ContainerStatus | None:
            status = self._call("ContainerStatus", made, ContainerStatusResponse).status
            return status if status is not None and status.state is CriContainerState.EXITED else None

        status = wait_for("container ended", ended, timeout_s=_CALL_S)
        log = (Path(config.log_directory) / f"{name}.log").read_text()
        # Each line begins with its time, the stream and whether it is whole.
        text = "".join(line.split(" ", 3)[3] for line in log.splitlines(keepends=True))
        return FinishedContainer(up_s, status.started_at / 1e9, status.exit_code, text)

    def started_at_s(self, container: str) -> float:
        """When a container was started, since 1970."""
        status = self._call("ContainerStatus", ContainerId(container), ContainerStatusResponse).status
        assert status is not None
        return status.started_at / 1e9

    def remove_pod(self, sandbox: str) -> None:
        """Stop a sandbox and remove it."""
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            self._call(method, PodSandboxId(sandbox), EmptyMessage)

    def _call(self, method: str, request: object, reply: type[A]) -> A:
        call = self._channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}",
            request_serializer=encode,
            response_deserializer=lambda data: decode(reply, data),
        )
        response: A = call(request, timeout=_CALL_S)
        return response
