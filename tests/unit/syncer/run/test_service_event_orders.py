# SPDX-License-Identifier: Apache-2.0
"""Answers of writes and events of the same writes reach the syncer in any order, and events in any pieces.

Before each patch somebody else writes the same object. Its event comes before or after the answer, alone or
in one piece with the event of the patch: the kernel hands over what is there. Or no event comes, but a list.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, Key
from devkit.kube.storage import Object
from tests.unit.syncer import objects
from tests.unit.syncer.planes import PacedWatches, annotations_of
from tests.unit.syncer.worlds import DOWN, World, at_once, furnish, running, sessions_of

pytestmark = pytest.mark.asyncio

CLAIM = "PersistentVolumeClaim"
ANNOTATIONS = {"old": "same", "new": "first"}
# Between two arrivals, in the loop's time: whatever follows from the first is done by then, or nothing is.
_SETTLED_S = 0.05
PAUSES_S = {"one-after-another": _SETTLED_S, "at-once": 0.0}
# A patrol would queue what waits for nothing else.
NEVER_S = 1_000_000


class _Order(NamedTuple):
    """Who else writes, and what reaches the syncer in which order.

    `arrivals` are "answer", or how many events more of which side: "super 2" are two in one piece.
    """

    is_super_edited: bool
    is_tenant_edited: bool
    has_status: bool
    arrivals: tuple[str, ...]


def _pieces(side: str, events: int) -> Iterator[list[str]]:
    """All ways in which a watch can bring so many events, or a list in the place of the last ones."""
    if not events:
        yield []
    else:
        yield [f"{side} list"]
    for first in range(1, events + 1):
        for rest in _pieces(side, events - first):
            yield [f"{side} {first}", *rest]


def _merged(*parts: Sequence[str]) -> Iterator[list[str]]:
    if not any(parts):
        yield []
    for at, part in enumerate(parts):
        if part:
            for rest in _merged(*parts[:at], part[1:], *parts[at + 1 :]):
                yield [part[0], *rest]


def _orders(*, is_super_edited: bool, is_tenant_edited: bool, has_status: bool) -> Iterator[_Order]:
    answers = ["answer"] * (1 + has_status)
    for pieces in _pieces("super", 1 + is_super_edited):
        for tenants in _pieces("tenant", has_status + is_tenant_edited):
            for found in _merged(answers, pieces, tenants):
                # The tenant is not written before the super cluster has answered.
                first = found.index("answer")
                if not any(each.startswith("tenant") for each in found[:first]):
                    yield _Order(is_super_edited, is_tenant_edited, has_status, tuple(found))


class _Round:
    """One object of one tenant, again and again from rest to rest."""

    def __init__(self, world: World, kind: str, namespace: str, name: str) -> None:
        self.world = world
        self.item = (kind, namespace, name)
        self._resource = NAMESPACES if kind == "Namespace" else DOWN[kind]
        self._planes = {"super": world.super, "tenant": world.tenants["one"]}
        self._watches = {side: PacedWatches() for side in self._planes}
        for side, plane in self._planes.items():
            plane.paced[self._resource] = self._watches[side]
        self._count = 0
        self._unanswered: deque[asyncio.Event] = deque()

    def _key(self, side: str) -> Key:
        _, namespace, name = self.item
        if side == "tenant":
            return namespace, name
        return (f"red-{namespace}", name) if namespace else ("", f"red-{name}")

    def _object(self, side: str) -> Object:
        return self._planes[side].storage.get(self._resource, *self._key(side))

    def edit(self, side: str, annotation: str, value: str) -> None:
        found = self._object(side)
        found["metadata"]["annotations"][annotation] = value
        self._planes[side].cluster.update(self._resource, found)

    def _side_of(self, path: str) -> str | None:
        """Of a write to the object itself or to a part of it."""
        for side in self._planes:
            whole = self._resource.path(self._key(side)[0] or None, self._key(side)[1])
            if path == whole or path.startswith(f"{whole}/"):
                return side
        return None

    async def run(self, order: _Order, pause_s: float) -> str:
        """What is wrong in the end, with a pause between two arrivals; empty for nothing."""
        self._count += 1
        text = f"{self._count}"
        # While an answer is kept back, both sides change: one plan writes both.
        self.world.before_answer = self._keep_back
        self.edit("tenant", "new", f"before {text}")
        await asyncio.sleep(_SETTLED_S)
        self.edit("tenant", "new", text)
        if order.has_status:
            condition = {"type": "Resizing", "status": "True", "message": text}
            found = self._object("super") | {"status": {"phase": "Pending", "conditions": [condition]}}
            self.world.super.cluster.update(self._resource, found, "status")
        await asyncio.sleep(_SETTLED_S)
        known = {side: plane.storage.revision for side, plane in self._planes.items()}
        for side, watches in self._watches.items():
            watches.hold(known[side])
        writes: list[str] = []

        def edit_first(path: str) -> None:
            side = self._side_of(path)
            if side is not None and side not in writes:
                writes.append(side)
                if order.is_super_edited if side == "super" else order.is_tenant_edited:
                    self.edit(side, "old", f"edited {text}")

        self.world.on_write = edit_first
        self._answer()
        for each in order.arrivals:
            side, _, events = each.partition(" ")
            if each == "answer":
                await asyncio.sleep(0 if self._unanswered else _SETTLED_S)
                self._answer()
            elif events == "list":
                self._watches[side].cut()
            else:
                known[side] += int(events)
                self._watches[side].hold(known[side])
            if pause_s:
                await asyncio.sleep(pause_s)
        await asyncio.sleep(_SETTLED_S)
        assert writes == (["super", "tenant"] if order.has_status else ["super"]), order
        self.world.before_answer = at_once
        while self._unanswered:
            self._answer()
        for watches in self._watches.values():
            watches.flow()
        await asyncio.sleep(5)
        return self._problem()

    async def _keep_back(self, path: str) -> None:
        if self._side_of(path) is not None:
            answered = asyncio.Event()
            self._unanswered.append(answered)
            await answered.wait()

    def _answer(self) -> None:
        self._unanswered.popleft().set()

    def _problem(self) -> str:
        own, found = self._object("tenant"), self._object("super")
        actual, desired = annotations_of(found), annotations_of(own)
        if any(actual[each] != desired[each] for each in ANNOTATIONS):
            return f"the super object has {actual}, the tenant's {desired}"
        if self.item[0] == CLAIM and own["status"] != found["status"]:
            return f"the tenant's status is {own['status']} and not {found['status']}"
        is_at_rest = not sessions_of(self.world)["red"].needs_plan(self.item)
        return "" if is_at_rest else "both agree, and that is not noted"


async def _lost(turn: _Round, orders: Iterable[_Order], pause_s: float) -> dict[tuple[str, ...], str]:
    """The orders after which something is wrong, and what."""
    found = {}
    for order in orders:
        if problem := await turn.run(order, pause_s):
            found[order.arrivals] = problem
            turn.edit("tenant", "new", "again")
            await asyncio.sleep(20)
    return found


def _annotated(kind: str) -> Object:
    metadata: Object = {"namespace": "web", "name": "v", "annotations": dict(ANNOTATIONS)}
    value: Object
    match kind:
        case "Pod":
            value = objects.pod("v")
        case "Service":
            value = objects.service("v", ports=[{"port": 80}])
        case "PersistentVolumeClaim":
            requests = {"storage": "1Gi"}
            value = objects.claim("v", accessModes=["ReadWriteOnce"], resources={"requests": requests})
        case "EndpointSlice":
            value = {"addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]}
            metadata["labels"] = {"kubernetes.io/service-name": "without-a-selector"}
        case "Ingress":
            value = {"spec": {"rules": [{"host": "a.example.com"}]}}
        case "NetworkPolicy":
            value = {"spec": {"podSelector": {}}}
        case "PodDisruptionBudget":
            value = {"spec": {"minAvailable": 1, "selector": {}}}
        case _:
            value = {}
    return value | {"kind": kind, "metadata": metadata}


@pytest.mark.parametrize("pause_s", PAUSES_S.values(), ids=PAUSES_S)
@pytest.mark.parametrize(
    ("is_super_edited", "is_tenant_edited"), [(True, False), (False, True), (True, True)]
)
async def test_no_edit_beside_patches_of_both_sides_is_lost(
    is_super_edited: bool, is_tenant_edited: bool, pause_s: float
) -> None:
    """A claim, whose annotation goes down and whose status comes up in one plan."""
    world = World({"one": "red"}, patrol_s=NEVER_S)
    turn = _Round(world, CLAIM, "web", "v")
    async with running(world):
        furnish(world.tenants["one"], _annotated(CLAIM))
        await asyncio.sleep(20)
        orders = _orders(is_super_edited=is_super_edited, is_tenant_edited=is_tenant_edited, has_status=True)
        assert await _lost(turn, orders, pause_s) == {}


@pytest.mark.parametrize("pause_s", PAUSES_S.values(), ids=PAUSES_S)
@pytest.mark.parametrize("kind", [*DOWN, "Namespace"])
async def test_no_edit_of_any_kind_beside_a_patch_is_lost(kind: str, pause_s: float) -> None:
    world = World({"one": "red"}, patrol_s=NEVER_S)
    turn = _Round(world, kind, *(("", "web") if kind == "Namespace" else ("web", "v")))
    async with running(world):
        plane = world.tenants["one"]
        if kind == "Namespace":
            annotated = {"name": "web", "annotations": dict(ANNOTATIONS)}
            plane.cluster.create(NAMESPACES, {"metadata": annotated})
        else:
            furnish(plane, _annotated(kind))
        await asyncio.sleep(20)
        orders = _orders(is_super_edited=True, is_tenant_edited=False, has_status=False)
        assert await _lost(turn, orders, pause_s) == {}


# A short step, a usual one, one that ends a slice, and one as long as a step may be.
STEPS_NS = (1_000, 50_000, 1_200_000, 20_000_000)


@pytest.mark.parametrize("seed", range(8))
async def test_no_edit_is_lost_whoever_has_the_next_turn(seed: int) -> None:
    """Nothing is held here: steps of any length decide when answers and events are looked at."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    world = World({"one": "red", "two": "blue"}, patrol_s=NEVER_S, step_ns=lambda: draw.choice(STEPS_NS))
    async with running(world):
        for plane in world.tenants.values():
            furnish(plane, _annotated("ConfigMap"))
        await asyncio.sleep(20)
        edited = set[str]()

        def edit_first(path: str) -> None:
            *_, namespace, resource, name = path.split("/")
            if (resource, name) == ("configmaps", "v") and namespace not in edited:
                edited.add(namespace)
                found = world.super.storage.get(CONFIG_MAPS, namespace, "v")
                found["metadata"]["annotations"]["old"] = "edited"
                world.super.cluster.update(CONFIG_MAPS, found)

        world.on_write = edit_first
        for number in range(20):
            edited.clear()
            for plane in world.tenants.values():
                own = plane.storage.get(CONFIG_MAPS, "web", "v")
                own["metadata"]["annotations"]["new"] = f"{number}"
                plane.cluster.update(CONFIG_MAPS, own)
            await asyncio.sleep(5)
            assert edited == {"red-web", "blue-web"}
            for key in ("red", "blue"):
                noted = annotations_of(world.super.storage.get(CONFIG_MAPS, f"{key}-web", "v"))
                assert {each: noted[each] for each in ANNOTATIONS} == {"old": "same", "new": f"{number}"}
                assert not sessions_of(world)[key].needs_plan(("ConfigMap", "web", "v"))
