# SPDX-License-Identifier: Apache-2.0
"""A fake of a container runtime's NRI: it reports sandboxes without running them.

It serves one plugin at a time as containerd does: order of registration, timeouts, both dialects, serial
calls. It has the fault of containerd's multiplexer too: where a ttrpc header begins, a frame above 4096 bytes
is unreadable. `tests/nri_contract.py` holds for it and, in the ring `tests/k8s`, for the real containerd.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from daemonkit.listeners import stop_accepting
from daemonkit.protobuf import decode, encode
from daemonkit.tasks import Tasks
from kata_bridge.nri.events import Event, mask
from kata_bridge.nri.messages import (
    PLUGIN,
    RUNTIME,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    CreateContainerRequest,
    CreateContainerResponse,
    Empty,
    PodRequest,
    PodSandbox,
    RegisterPluginRequest,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)
from kata_bridge.nri.mux import PLUGIN_CONNECTION, RUNTIME_CONNECTION, Demultiplexer, multiplexed
from kata_bridge.ttrpc.client import ClientCalls
from kata_bridge.ttrpc.frame import Frame
from kata_bridge.ttrpc.server import ServerCalls
from kata_bridge.ttrpc.status import Code, TtrpcError

A = TypeVar("A")

_READER_BYTES = 4096
_STOP_S = 1.0
# Below the deadline of any test, which would not say what the runtime has seen.
_REGISTERED_S = 15.0


@dataclass(slots=True)
class RuntimeQuirks:
    """How this runtime behaves. May change while it runs, for the next connection."""

    name: str = "containerd"
    version: str = "2.4.2"
    nri_version: str = "v0.12.3"  # empty: one before 0.12, with the older dialect
    valid_events: int = 0x3FFF
    request_timeout_s: float = 2.0
    registration_timeout_s: float = 5.0
    objects_in_a_message: int = 1000  # more make Synchronize come in parts
    refuses: str = ""  # its error for RegisterPlugin


class _PluginConnection:
    def __init__(self, writer: asyncio.StreamWriter, tasks: Tasks, quirks: RuntimeQuirks) -> None:
        self.calls = ClientCalls(lambda frame: self._send(PLUGIN_CONNECTION, frame), writer.drain)
        self.serving = ServerCalls(self._answer, lambda frame: self._send(RUNTIME_CONNECTION, frame), tasks)
        self.registration: RegisterPluginRequest | None = None
        self.registered = asyncio.Event()
        self.events = 0
        self._writer = writer
        self._quirks = quirks

    def _send(self, connection: int, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(multiplexed(connection, frame))

    async def _answer(self, service: str, method: str, payload: bytes) -> bytes:
        if (service, method) != (RUNTIME, "RegisterPlugin"):
            raise TtrpcError(Code.UNIMPLEMENTED, f"{service}/{method}")
        if self._quirks.refuses:
            raise TtrpcError(Code.UNKNOWN, self._quirks.refuses)
        self.registration = decode(RegisterPluginRequest, payload)
        self.registered.set()
        return encode(Empty())

    async def call(self, method: str, request: object, reply: type[A]) -> A:
        timeout_s = self._quirks.request_timeout_s
        return decode(reply, await self.calls.call(PLUGIN, method, encode(request), timeout_s))

    def close(self) -> None:
        self._writer.close()


@dataclass(slots=True)
class FakeRuntime:
    """A runtime on the unix socket `path`; `async with` serves it.

    `pods` and `containers` are what a plugin gets when it registers. `registrations` counts plugins.
    """

    path: Path
    quirks: RuntimeQuirks = field(default_factory=RuntimeQuirks)
    pods: list[PodSandbox] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    registrations: int = 0
    connections: int = 0
    plugin: _PluginConnection | None = None
    # Changes our adjustment as another plugin does.
    adjust: Callable[[ContainerAdjustment | None], ContainerAdjustment] | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tasks: Tasks = field(default_factory=lambda: Tasks("fake-runtime"))
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self.path.unlink(missing_ok=True)
        self._tasks = Tasks("fake-runtime")
        self._server = await asyncio.start_unix_server(self._connected, str(self.path))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await stop_accepting(self._server)
        await self._tasks.close(_STOP_S)
        self.path.unlink(missing_ok=True)

    async def wait_registered(self, times: int = 1, *, within_s: float = _REGISTERED_S) -> None:
        """Wait until plugins have registered and synchronized so often. Raises TimeoutError."""
        try:
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(lambda: self.registrations >= times)
        except TimeoutError:
            seen = f"{self.connections} connections, {self.registrations} registrations"
            message = f"{self.path}: not {times} registrations within {within_s:g} s, but {seen}"
            raise TimeoutError(message) from None

    async def run_pod(self, pod: PodSandbox) -> None:
        """Start a sandbox; raises the `TtrpcError` that tears it down again."""
        await self._notify(Event.RUN_POD_SANDBOX, "RunPodSandbox", pod)
        self.pods.append(pod)

    async def stop_pod(self, pod: PodSandbox) -> None:
        await self._notify(Event.STOP_POD_SANDBOX, "StopPodSandbox", pod)

    async def remove_pod(self, pod: PodSandbox) -> None:
        await self._notify(Event.REMOVE_POD_SANDBOX, "RemovePodSandbox", pod)
        self.pods = [each for each in self.pods if each.id != pod.id]

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | None:
        """Create a container; raises `TtrpcError` with the message for the pod's author."""
        async with self._lock:
            adjustment = None
            if (plugin := self.plugin) is not None and plugin.events & mask([Event.CREATE_CONTAINER]):
                request = CreateContainerRequest(pod, container)
                created = await plugin.call("CreateContainer", request, CreateContainerResponse)
                adjustment = created.adjust
            if self.adjust is not None:
                adjustment = self.adjust(adjustment)
            if plugin is not None and plugin.events & mask([Event.VALIDATE_CONTAINER_ADJUSTMENT]):
                validate = ValidateContainerAdjustmentRequest(pod, container, adjustment)
                verdict = await plugin.call(
                    "ValidateContainerAdjustment", validate, ValidateContainerAdjustmentResponse
                )
                if verdict.reject:
                    raise TtrpcError(Code.INTERNAL, verdict.reason)
            self.containers.append(container)
            return adjustment

    def drop(self) -> None:
        """Close the plugin's connection, as after one timeout."""
        if self.plugin is not None:
            self.plugin.close()

    async def _notify(self, event: Event, method: str, pod: PodSandbox) -> None:
        async with self._lock:  # calls are serial for the whole node
            if (plugin := self.plugin) is None or not plugin.events & mask([event]):
                return
            try:
                if self.quirks.nri_version:
                    await plugin.call(method, PodRequest(pod), Empty)
                else:
                    await plugin.call("StateChange", StateChangeEvent(event, pod), Empty)
            except (TimeoutError, ConnectionError):
                plugin.close()  # and the sandbox goes on without it

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.spawn(self._serve(reader, writer), "plugin", when_over=writer.close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plugin = _PluginConnection(writer, self._tasks, self.quirks)
        self._tasks.spawn(self._register(plugin), "register")
        mux = Demultiplexer()
        buffer = HeaderBuffer()
        try:
            while data := await reader.read(64 << 10):
                if not buffer.try_read(data):
                    break
                for connection, piece in mux.feed(data):
                    (plugin.calls if connection == PLUGIN_CONNECTION else plugin.serving).receive(piece)
                await writer.drain()
        except OSError:
            pass  # as when it closes
        finally:
            plugin.calls.lost("the plugin is gone")
            if self.plugin is plugin:
                self.plugin = None
            writer.close()

    async def _register(self, plugin: _PluginConnection) -> None:
        quirks = self.quirks
        try:
            async with asyncio.timeout(quirks.registration_timeout_s):
                await plugin.registered.wait()
            introduction = ConfigureRequest(
                *(quirks.name, quirks.version, 5000, 2000),
                NRI_version=quirks.nri_version,
            )
            configured = await plugin.call("Configure", introduction, ConfigureResponse)
            plugin.events = configured.events or quirks.valid_events
            if plugin.events & ~quirks.valid_events:
                plugin.close()
                return
            async with self._lock:
                for request in self._synchronization(quirks.objects_in_a_message):
                    reply = await plugin.call("Synchronize", request, SynchronizeResponse)
                    if reply.more != request.more:
                        plugin.close()
                        return
                self.plugin = plugin
        except (TimeoutError, ConnectionError, TtrpcError):
            plugin.close()
            return
        async with self._changed:
            self.registrations += 1
            self._changed.notify_all()

    def _synchronization(self, at_once: int) -> Iterable[SynchronizeRequest]:
        pods, containers = list(self.pods), list(self.containers)
        while True:
            part = SynchronizeRequest(tuple(pods[:at_once]), tuple(containers[:at_once]))
            pods, containers = pods[at_once:], containers[at_once:]
            if not pods and not containers:
                yield part
                return
            yield SynchronizeRequest(part.pods, part.containers, True)


class HeaderBuffer:
    """Finds frames that containerd's multiplexer cannot read: longer than its buffer for a header."""

    def __init__(self) -> None:
        self._trunk = b""
        self._data_left: dict[int, int] = {}

    def try_read(self, data: bytes) -> bool:
        self._trunk += data
        while len(self._trunk) >= 8:
            connection, size = int.from_bytes(self._trunk[:4], "big"), int.from_bytes(self._trunk[4:8], "big")
            if not self._data_left.get(connection):
                if size > _READER_BYTES:
                    return False
                if len(self._trunk) < 12:
                    return True
                # A frame that begins with a header: the rest of the message follows.
                message = 10 + int.from_bytes(self._trunk[8:12], "big")
                left = message - size
            else:
                left = self._data_left[connection] - size
            if len(self._trunk) < 8 + size:
                return True
            self._data_left[connection] = max(left, 0)
            self._trunk = self._trunk[8 + size :]
        return True
