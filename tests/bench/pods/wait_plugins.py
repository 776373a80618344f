# SPDX-License-Identifier: Apache-2.0
"""Two NRI plugins that let pods wait until rules are applied (docs/decisions/0015).

One denies containers and nudges the kubelet, as kata-bridge does. The other adds a createRuntime hook.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from daemonkit.protobuf import INT64, STRING, encode, message_of, messages_of, repeated
from daemonkit.protobuf import field as number
from kata_bridge.nri.dispatch import Deny, Dispatch
from kata_bridge.nri.events import GATE, SANDBOXES
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from tenancy import keys
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.nri import WatchingPlugin
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import KATA

_REGISTERED_S = 10.0
_HOOK_S = 30


class RulesWait(WatchingPlugin):
    """Simulates that rules are applied `latency_s` after the sandbox started; a subclass lets pods wait."""

    def __init__(self, ring: Ring, latency_s: float) -> None:
        super().__init__(ring.node.nri_socket, SANDBOXES | GATE, index="40")
        self._ring = ring
        self._latency_s = latency_s

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        asyncio.get_running_loop().call_later(self._latency_s, self.ready, pod)

    def ready(self, pod: PodSandbox) -> None:
        raise NotImplementedError


class Nudged(RulesWait):
    """Denies containers until then, and nudges the pods that it denied."""

    def __init__(self, ring: Ring, latency_s: float) -> None:
        super().__init__(ring, latency_s)
        self._ready: set[str] = set()
        self._denied: dict[str, PodSandbox] = {}

    def ready(self, pod: PodSandbox) -> None:
        self._ready.add(pod.id)
        if self._denied.pop(pod.id, None) is not None:
            threading.Thread(target=self._nudge, args=(pod,)).start()

    def _nudge(self, pod: PodSandbox) -> None:
        annotations = {keys.GATE_OPENED: str(time.time())}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        self._ring.super_cluster.api.patch(path, {"metadata": {"annotations": annotations}})

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        if pod.id in self._ready or pod.runtime_handler != KATA:
            return ContainerAdjustment()
        self._denied[pod.id] = pod
        return Deny("waiting")


class Hooked(RulesWait):
    """Lets each container wait for a file, in a hook."""

    def ready(self, pod: PodSandbox) -> None:
        (self._ring.directory / f"ready-{pod.id}").touch()

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        (self._ring.directory / f"ready-{pod.id}").unlink(missing_ok=True)


@contextmanager
def nudged(ring: Ring, latency_s: float) -> Iterator[None]:
    with _connected(Nudged(ring, latency_s)):
        yield


@contextmanager
def hooked(ring: Ring, latency_s: float) -> Iterator[None]:
    with mock.patch("kata_bridge.nri.plugin.Dispatch", _with_hook(ring)), _connected(Hooked(ring, latency_s)):
        yield


@contextmanager
def _connected(plugin: WatchingPlugin) -> Iterator[None]:
    with plugin:
        wait_for("registered", lambda: plugin.plugin.is_connected, timeout_s=_REGISTERED_S)
        yield


# Messages of NRI that only a hook needs.


@dataclass(frozen=True, slots=True)
class OptionalInt:
    value: int = number(1, INT64)


@dataclass(frozen=True, slots=True)
class Hook:
    path: str = number(1, STRING)
    args: tuple[str, ...] = number(2, repeated(STRING))
    timeout: OptionalInt | None = number(4, message_of(OptionalInt))


@dataclass(frozen=True, slots=True)
class Hooks:
    create_runtime: tuple[Hook, ...] = number(2, messages_of(Hook))


@dataclass(frozen=True, slots=True)
class Adjustment:
    hooks: Hooks | None = number(5, message_of(Hooks))


@dataclass(frozen=True, slots=True)
class Response:
    adjust: Adjustment | None = number(1, message_of(Adjustment))


# The container's state comes on standard input (OCI runtime specification, hooks); its bundle's
# configuration has the sandbox's id.
_WAITER = """#!/bin/sh
id=$(sed -n 's/.*"bundle": *"\\([^"]*\\)".*/\\1/p' | head -n 1)
sandbox=$(grep -o '"io.kubernetes.cri.sandbox-id": *"[^"]*"' "$id/config.json" | head -n 1 | cut -d '"' -f 4)
n=0
while [ ! -e "DIRECTORY/ready-$sandbox" ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n + 1)); done
"""


def _with_hook(ring: Ring) -> type[Dispatch]:
    """A dispatch that adds a hook to each container of the runtime class."""
    waiter = ring.directory / "waiter"
    waiter.write_text(_WAITER.replace("DIRECTORY", str(ring.directory)))
    waiter.chmod(0o755)
    hook = encode(Response(Adjustment(Hooks((Hook(str(waiter), (str(waiter),), OptionalInt(_HOOK_S)),)))))

    class HookDispatch(Dispatch):
        async def answer(self, service: str, method: str, payload: bytes) -> bytes:
            answer = await super().answer(service, method, payload)
            # Concatenated protobuf messages decode as one message with the fields of both.
            return answer + hook if method == "CreateContainer" and b"kata" in payload else answer

    return HookDispatch
