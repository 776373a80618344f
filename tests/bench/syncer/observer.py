# SPDX-License-Identifier: Apache-2.0
"""Sees pods on both sides, in one process and on one clock.

Both sides are seen by watches, so that the time which an event takes to a watcher is in both readings and
nearly cancels.
"""

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from daemonkit.kube.client import Client
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.resources import PODS, NameOnly
from daemonkit.kube.store import Added, Change, Modified
from daemonkit.tasks import Tasks
from tests.bench.processes import RunError
from tests.bench.syncer.loader import NAMESPACE

PodName = tuple[str, str]
"""The tenant's key and the pod's name."""

# A syncer whose periodic check repairs is given two rounds of a minute.
STALLED_S = 150.0
_POLL_S = 0.02


class _SeenContainer(msgspec.Struct, frozen=True, rename="camel"):
    restart_count: int = 0


class _SeenStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    container_statuses: tuple[_SeenContainer, ...] = ()


class SeenPod(msgspec.Struct, frozen=True):
    """What is observed of a pod."""

    metadata: NameOnly
    status: _SeenStatus = _SeenStatus()

    @property
    def restarts(self) -> int:
        return max((each.restart_count for each in self.status.container_statuses), default=0)


@dataclass(slots=True)
class PodTimes:
    """When each state of a pod was first seen, of `time.monotonic`; 0 for not yet."""

    created_s: float = 0.0
    in_super_s: float = 0.0
    super_running_s: float = 0.0
    running_s: float = 0.0

    @property
    def own_ms(self) -> float:
        """From the tenant's pod to the super pod, and from running there to running in the tenant."""
        down_s = max(0.0, self.in_super_s - self.created_s)
        up_s = max(0.0, self.running_s - self.super_running_s)
        return (down_s + up_s) * 1e3


class Observer:
    """Watches the pods of the super cluster and of all tenants."""

    def __init__(
        self, super_client: Client, tenants: Mapping[str, Client], namespaces: Mapping[str, str]
    ) -> None:
        """`namespaces` has the super namespace that stands for each tenant's NAMESPACE."""
        self._tenant_of = {namespace: key for key, namespace in namespaces.items()}
        self._tasks = Tasks("observer")
        self.times: dict[PodName, PodTimes] = {}
        self._running: Counter[tuple[str, str]] = Counter()
        """Pods that have been seen running in their tenants, by tenant and load."""
        self.changed_s = time.monotonic()
        self.super_pods: Reflector[SeenPod] = Reflector(
            super_client, PODS, SeenPod, on_change=self._super_changed
        )
        self.tenant_pods = {
            key: Reflector(
                client,
                PODS,
                SeenPod,
                namespace=NAMESPACE,
                on_change=functools.partial(self._tenant_changed, key),
            )
            for key, client in tenants.items()
        }

    async def start(self) -> None:
        for name, reflector in (("super", self.super_pods), *self.tenant_pods.items()):
            self._tasks.spawn(reflector.run(), name)
            await reflector.synced.wait()

    async def stop(self) -> None:
        await self._tasks.close(1.0)

    def in_super(self, namespace: str, name: str) -> SeenPod | None:
        return self.super_pods.objects.get((namespace, name))

    def in_tenant(self, key: str, name: str) -> SeenPod | None:
        return self.tenant_pods[key].objects.get((NAMESPACE, name))

    def with_prefix(self, prefix: str, tenants: Iterable[str] | None = None) -> list[PodTimes]:
        """The times of the pods of one load."""
        keys = set(self.tenant_pods if tenants is None else tenants)
        return [
            times for (key, name), times in self.times.items() if key in keys and _load_of(name) == prefix
        ]

    def count_running(self, prefix: str, tenants: Iterable[str] | None = None) -> int:
        """How many pods of one load have been seen running in these tenants, or in all."""
        keys = self.tenant_pods if tenants is None else tenants
        return sum(self._running[key, prefix] for key in keys)

    async def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until it is true; returns when. Raises RunError after STALLED_S without a change of a pod."""
        began_s = time.monotonic()
        while not condition():
            if time.monotonic() - max(began_s, self.changed_s) > STALLED_S:
                raise RunError(f"nothing happens any more, waiting for {what}")
            await asyncio.sleep(_POLL_S)  # pace: of looking at what the watches brought
        return time.monotonic()

    def _super_changed(self, changes: Sequence[Change[SeenPod]]) -> None:
        now_s = self.changed_s = time.monotonic()
        for change in changes:
            key = self._tenant_of.get(change.key[0])
            if key is None or not isinstance(change, Added | Modified):
                continue
            times = self.times.setdefault((key, change.key[1]), PodTimes())
            times.in_super_s = times.in_super_s or now_s
            if change.value.status.phase == "Running":
                times.super_running_s = times.super_running_s or now_s

    def _tenant_changed(self, key: str, changes: Sequence[Change[SeenPod]]) -> None:
        now_s = self.changed_s = time.monotonic()
        for change in changes:
            if isinstance(change, Added | Modified):
                times = self.times.setdefault((key, change.key[1]), PodTimes())
                times.created_s = times.created_s or now_s
                if change.value.status.phase == "Running" and not times.running_s:
                    times.running_s = now_s
                    self._running[key, _load_of(change.key[1])] += 1


def _load_of(name: str) -> str:
    """The prefix of a load's pods, whose names end with their numbers."""
    return name.rstrip("0123456789")
