# SPDX-License-Identifier: Apache-2.0
"""What waiting costs a pod: not at all, refused and nudged, and in a createRuntime hook; and what all
of us together cost it. Prints figures (`-rP`); docs/decisions/0015 is made of them."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Self

import pytest

from daemonkit.protobuf import INT64, STRING, encode, message_of, messages_of, repeated
from daemonkit.protobuf import field as number
from kata_bridge.api.client import BridgeClient, BridgeError
from kata_bridge.api.messages import GuestEventKind
from kata_bridge.nri.dispatch import Dispatch, Hold
from kata_bridge.nri.events import GATE, SANDBOXES
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from tenancy import keys
from tests.k8s.ring import cri, gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import bridge_socket
from tests.k8s.ring.nri import WatchingPlugin
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import KATA, say, serving
from tests.k8s.ring.tenants import Tenant

ROUNDS = 3
PODS = 10  # one after the other, in each round
AT_ONCE = 10
_STARTED_S = 60.0
# What the project promises its users that a pod's start costs at most, at the median.
_PROMISE_S = 0.1


@dataclass(slots=True)
class Starts:
    """How long pods took from their creation to their container's start, as the runtime has it."""

    single_s: list[float] = field(default_factory=list)
    burst_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"one by one {figures(self.single_s)}; {AT_ONCE} at once {figures(self.burst_s)}"


def figures(times_s: list[float]) -> str:
    ordered = sorted(times_s)
    return f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {ordered[len(ordered) * 99 // 100]:.2f} s"


def median(times_s: list[float]) -> float:
    return sorted(times_s)[len(times_s) // 2]


@pytest.fixture(scope="module")
def place(ring: Ring, acme: Tenant) -> str:
    services.create_runtime_classes(ring, KATA)
    ring.syncer.create_namespace(acme, "cost")
    return acme.super_namespace("cost")


def measure(ring: Ring, tenant: Tenant, namespace: str, into: Starts, luck: random.Random) -> None:
    for _ in range(PODS):
        # The kubelet looks at its containers once a second: not always at the same point of that.
        time.sleep(luck.uniform(0, 1))
        into.single_s += start(ring, tenant, namespace, 1)
    into.burst_s += start(ring, tenant, namespace, AT_ONCE)


def start(ring: Ring, tenant: Tenant, namespace: str, count: int) -> list[float]:
    """Start pods at once and return how long each took; they are gone afterwards."""
    api = ring.super_cluster.api
    path = f"/api/v1/namespaces/{namespace}/pods"
    began_s: dict[str, float] = {}
    for _ in range(count):
        name = f"c-{secrets.token_hex(4)}"
        value = services.pod_value(tenant, name, ring.node.name, KATA, services.sleeper())
        began_s[name] = time.time()
        api.create(path, value)

    def running() -> list[JsonObject] | None:
        items: list[JsonObject] = api.get(path)["items"]
        return items if all(each["status"].get("phase") == "Running" for each in items) else None

    items = wait_for("pods run", running, timeout_s=_STARTED_S)
    runtime = cri.Cri(ring.node.cri_socket)
    took_s = []
    for item in items:
        (container,) = item["status"]["containerStatuses"]
        started_s = runtime.started_at_s(container["containerID"].partition("://")[2])
        took_s.append(started_s - began_s[item["metadata"]["name"]])
    runtime.close()
    for name in began_s:
        api.delete(f"{path}/{name}")
    wait_for("pods are gone", lambda: not api.get(path)["items"], timeout_s=_STARTED_S)
    return took_s


class Waiting(WatchingPlugin):
    """Rules that are in `latency_s` after a sandbox; how one waits for them is a subclass's."""

    def __init__(self, ring: Ring, latency_s: float) -> None:
        super().__init__(ring.node.nri_socket, SANDBOXES | GATE, index="40")
        self._ring = ring
        self._latency_s = latency_s

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        asyncio.get_running_loop().call_later(self._latency_s, self.ready, pod)

    def ready(self, pod: PodSandbox) -> None:
        raise NotImplementedError


class Nudged(Waiting):
    """Refuses until then, and nudges whom it has refused."""

    def __init__(self, ring: Ring, latency_s: float) -> None:
        super().__init__(ring, latency_s)
        self._ready: set[str] = set()
        self._held: dict[str, PodSandbox] = {}

    def ready(self, pod: PodSandbox) -> None:
        self._ready.add(pod.id)
        if self._held.pop(pod.id, None) is not None:
            threading.Thread(target=self._nudge, args=(pod,)).start()

    def _nudge(self, pod: PodSandbox) -> None:
        annotations = {keys.GATE_OPENED: str(time.time())}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        self._ring.super_cluster.api.patch(path, {"metadata": {"annotations": annotations}})

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Hold:
        if pod.id in self._ready or pod.runtime_handler != KATA:
            return ContainerAdjustment()
        self._held[pod.id] = pod
        return Hold("waiting")


class Hooked(Waiting):
    """Lets each container wait in a hook for a file."""

    def ready(self, pod: PodSandbox) -> None:
        (self._ring.directory / f"ready-{pod.id}").touch()

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        (self._ring.directory / f"ready-{pod.id}").unlink(missing_ok=True)


# What of NRI only a hook would need.


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


def with_hook(ring: Ring) -> type[Dispatch]:
    """A dispatch that adds a hook to each container of the runtime class."""
    waiter = ring.directory / "waiter"
    waiter.write_text(_WAITER.replace("DIRECTORY", str(ring.directory)))
    waiter.chmod(0o755)
    hook = encode(Response(Adjustment(Hooks((Hook(str(waiter), (str(waiter),), OptionalInt(30)),)))))

    class HookDispatch(Dispatch):
        async def answer(self, service: str, method: str, payload: bytes) -> bytes:
            answer = await super().answer(service, method, payload)
            # Two messages in a row are one of all their fields.
            return answer + hook if method == "CreateContainer" and b"kata" in payload else answer

    return HookDispatch


class Sayer:
    """Says a resolv.conf of each guest as soon as kata-bridge tells of it, as dnsconfig does."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sayer")
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        def cancel() -> None:
            if self._task is not None:
                self._task.cancel()

        self._loop.call_soon_threadsafe(cancel)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, suppress(asyncio.CancelledError):
            runner.run(self._say())

    async def _say(self) -> None:
        self._task = asyncio.current_task()
        async with BridgeClient(bridge_socket(self._ring)) as bridge:
            said: set[str] = set()
            while True:
                try:
                    async for event in bridge.watch_guests():
                        if (
                            event.kind is GuestEventKind.PRESENT
                            and event.guest
                            and event.guest.id not in said
                        ):
                            said.add(event.guest.id)
                            await bridge.set_resolv_conf(event.guest.id, gating.RESOLV_CONF)
                except BridgeError:
                    await asyncio.sleep(0.1)


@contextmanager
def ours(ring: Ring) -> Iterator[None]:
    gate: JsonObject = {
        "directory": str(ring.directory / "pods-cost"),
        "superCluster": gating.allow_bridge(ring),
    }
    with serving(ring, gate), Sayer(ring):
        yield


@contextmanager
def connected(plugin: WatchingPlugin) -> Iterator[None]:
    with plugin:
        wait_for("registered", lambda: plugin.plugin.is_connected, timeout_s=10)
        yield


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_waiting_costs(ring: Ring, acme: Tenant, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = with_hook(ring)

    @contextmanager
    def hooked(latency_s: float) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr("kata_bridge.nri.plugin.Dispatch", hook)
            with connected(Hooked(ring, latency_s)):
                yield

    ways: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "without us": nullcontext,
        "all of us": lambda: ours(ring),
        "refused and nudged, rules at once": lambda: connected(Nudged(ring, 0.0)),
        "in a hook, rules at once": lambda: hooked(0.0),
        "refused and nudged, rules after 300 ms": lambda: connected(Nudged(ring, 0.3)),
        "in a hook, rules after 300 ms": lambda: hooked(0.3),
    }
    luck = random.Random(5)  # noqa: S311 - when a pod is made
    found = {name: Starts() for name in ways}
    # In turns: whatever else the machine does is then done to all.
    for _ in range(ROUNDS):
        for name, around in ways.items():
            with around():
                measure(ring, acme, place, found[name], luck)
    for name, starts in found.items():
        say(f"{name}: {starts}")
    slower_s = median(found["all of us"].single_s) - median(found["without us"].single_s)
    say(f"all of us: slower by {1000 * slower_s:.0f} ms at the median (promised: {1000 * _PROMISE_S:.0f} ms)")
    # Figures of a machine that does other things as well: only what is far off fails.
    assert slower_s <= 3 * _PROMISE_S
