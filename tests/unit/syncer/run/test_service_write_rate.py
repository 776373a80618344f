# SPDX-License-Identifier: Apache-2.0
"""One tenant's writes fill neither the super cluster's history nor the time of others."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import CONFIG_MAPS, ENDPOINT_SLICES, PODS, SECRETS, Resource, Status
from devkit.kube.storage import Object
from syncer.core.write_rate import REFILL_S
from syncer.policy.limits import STORED_BYTES
from syncer.sources.policies import SYNC_POLICIES
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane, refused
from tests.unit.syncer.worlds import (
    ENDPOINTS,
    EVENTS,
    World,
    furnish,
    reports_of,
    running,
    sessions_of,
    synced_tenant,
)

pytestmark = pytest.mark.asyncio

_STORED = 16 << 20
_LARGE = 500_000
MIB = 1 << 20
_EDITED = 10
# Small ones: a ConfigMap that is made and deleted, and the one of the API server's authority.
_OTHERS = 3
_WAITS = (
    "this tenant may write 131072 bytes a second to the super cluster, and has written more: this write waits"
)


def _edit(plane: Plane, name: str, mark: str, text: str | None = None) -> None:
    value = plane.storage.get(CONFIG_MAPS, "web", name)
    value["metadata"].setdefault("annotations", {})["mark"] = mark
    if text is not None:
        value["data"] = {"text": text}
    plane.storage.put(CONFIG_MAPS, value)


def _mark(world: World, namespace: str, name: str) -> str:
    found: str = world.super.storage.get(CONFIG_MAPS, namespace, name)["metadata"]["annotations"]["mark"]
    return found


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "an annotation"])
async def test_changes_of_large_objects_keep_a_rate(is_whole: bool) -> None:
    world = World({"one": "red", "two": "blue"})
    policy: Object = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"namespace": "tenants", "name": "default"},
        "spec": {"quota": {"hard": {STORED_BYTES: str(_STORED)}}},
    }
    world.super.storage.put(SYNC_POLICIES, policy)
    written: list[str] = []
    world.on_write = written.append
    async with running(world):
        large_text = "x" * _LARGE
        red, blue = world.tenants["one"], world.tenants["two"]
        furnish(
            red,
            *(objects.config_map(f"c-{n}", large_text) for n in range(_EDITED)),
            objects.config_map("gone"),
        )
        furnish(blue, objects.config_map("own"))
        await asyncio.sleep(20)
        for second in range(120):
            # All of them each time: six times what the tenant may have, in all.
            for number in range(_EDITED) if second % 6 == 0 else ():
                _edit(red, f"c-{number}", str(second), f"{second} {large_text}" if is_whole else None)
            _edit(blue, "own", str(second))
            if second == 60:
                red.storage.delete(CONFIG_MAPS, "web", "gone")
            await asyncio.sleep(1)
            assert _mark(world, "blue-web", "own") == str(second)
            if second >= 60:
                assert ("red-web", "gone") not in world.super.objects(CONFIG_MAPS)
        now_s = asyncio.get_running_loop().time()
        count = sum("/namespaces/red-web/configmaps" in path for path in written)
        large = (count - _OTHERS) * _LARGE
        assert _STORED < large <= _STORED + now_s * _STORED / REFILL_S
        assert _WAITS in set(_messages(red))
        assert set(_messages(blue)) == set()
        await asyncio.sleep(REFILL_S)
        assert {_mark(world, "red-web", f"c-{number}") for number in range(_EDITED)} == {"114"}
        assert world.problems == []


def _endpoints(kind: str, *addresses: str) -> Object:
    """Endpoints, or a slice, of the Service `s`."""
    meta: Object = {"namespace": "web", "name": "s"}
    if kind == "Endpoints":
        subsets = [{"addresses": [{"ip": each} for each in addresses]}] if addresses else []
        return {"kind": kind, "metadata": meta, "subsets": subsets}
    meta["labels"] = {"kubernetes.io/service-name": "s"}
    endpoints = [{"addresses": [each]} for each in addresses]
    return {"kind": kind, "metadata": meta, "addressType": "IPv4", "endpoints": endpoints}


def _lead_to(plane: Plane, kind: str, *addresses: str) -> None:
    resource = ENDPOINTS if kind == "Endpoints" else ENDPOINT_SLICES
    changed = _endpoints(kind, *addresses)
    del changed["metadata"]
    plane.storage.put(resource, plane.storage.get(resource, "web", "s") | changed)


@pytest.mark.parametrize("takes_away", [True, False], ids=["within its rate", "beyond it"])
@pytest.mark.parametrize("kind", ["Endpoints", "EndpointSlice"])
async def test_a_debt_keeps_no_address(kind: str, *, takes_away: bool) -> None:
    """The address of a pod that ended is another tenant's next."""
    resource = ENDPOINTS if kind == "Endpoints" else ENDPOINT_SLICES
    async with synced_tenant(objects.pod("p"), objects.pod("q"), objects.service("s")) as (world, plane):
        ours, ends = (
            world.super.storage.get(PODS, "red-web", each)["status"]["podIP"] for each in ("p", "q")
        )
        plane.cluster.create(resource, _endpoints(kind, ours, ends))
        await asyncio.sleep(5)
        rate, now_s = sessions_of(world)["red"].write_rate, asyncio.get_running_loop().time()
        assert rate.reserve_s(("ConfigMap", "web", "large"), 1 << 30, now_s) > 600
        assert takes_away or rate.try_take_away(("Endpoints", "web", "other"), 64 << 20, now_s)
        # A rate that is all used up: the object goes as a whole, and what is to stay waits.
        _lead_to(plane, kind, ours)
        await asyncio.sleep(5)
        found = world.super.objects(resource).get(("red-web", "s"))
        assert ends not in str(found)
        assert (found is not None) == takes_away
        assert found is None or ours in str(found)
        # More addresses wait as everything does.
        _lead_to(plane, kind, ours, ends)
        await asyncio.sleep(60)
        assert ends not in str(world.super.objects(resource).get(("red-web", "s")))
        assert world.problems == []


class _Refusing(World):
    """`refused` are the patches of the super cluster that it has refused, of these objects."""

    def __init__(self, tenants: Mapping[str, str]) -> None:
        super().__init__(tenants)
        self.refuses: Resource | None = None
        self.code = 422
        self.refused: list[str] = []

    def note_write(self, plane: Plane, method: str, path: str, body: bytes | None) -> None:
        super().note_write(plane, method, path, body)
        if self.refuses is not None and method == "PATCH" and f"/{self.refuses.plural}/" in path:
            self.refused.append(path)
            raise refused(self.code)


@pytest.mark.parametrize("code", [0, 422, 500], ids=["too large", "refused", "webhook fails"])
@pytest.mark.parametrize("kind", ["Endpoints", "EndpointSlice"])
async def test_nothing_else_in_a_change_keeps_an_address(kind: str, code: int) -> None:
    """A tenant puts something into it that no API server accepts: the object goes as a whole."""
    is_too_large = not code
    resource = ENDPOINTS if kind == "Endpoints" else ENDPOINT_SLICES
    world = _Refusing({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"), objects.pod("q"), objects.service("s"))
        await asyncio.sleep(30)
        ours, ends = (
            world.super.storage.get(PODS, "red-web", each)["status"]["podIP"] for each in ("p", "q")
        )
        plane.cluster.create(resource, _endpoints(kind, ours, ends))
        rate = sessions_of(world)["red"].write_rate
        rate.set_stored_bytes(2 * MIB)
        await asyncio.sleep(REFILL_S)
        assert ends in str(world.super.objects(resource)["red-web", "s"])
        world.refuses, world.code = None if is_too_large else resource, code
        more = {"annotations": {"large": "<" * 700_000 if is_too_large else "x" * 200_000}}
        value = plane.storage.get(resource, "web", "s")
        del value["metadata"]["resourceVersion"]
        changed = _endpoints(kind, ours)
        changed["metadata"] = value["metadata"] | more
        plane.storage.put(resource, value | changed)
        await asyncio.sleep(5)
        found = world.super.objects(resource).get(("red-web", "s"))
        assert ends not in str(found)
        assert len(world.refused) == (0 if is_too_large else 1)
        # The object is made again where it may be, and costs what it is: what failed may have been written.
        assert (found is None) == is_too_large
        now_s = asyncio.get_running_loop().time()
        assert (rate.reserve_s(("Secret", "web", "a"), 2 * MIB - 250_000, now_s) == 0) == (code < 500)
        assert world.problems == []


async def test_what_is_deleted_while_it_waits_costs_nothing() -> None:
    async with synced_tenant() as (world, plane):
        session = sessions_of(world)["red"]
        await asyncio.sleep(REFILL_S)
        session.write_rate.reserve_s(("Secret", "web", "none"), 128 << 20, asyncio.get_running_loop().time())
        for _ in range(20):
            for number in range(10):
                plane.cluster.create(CONFIG_MAPS, objects.config_map(f"c-{number}", "x" * _LARGE))
            await asyncio.sleep(1)
            for number in range(10):
                plane.storage.delete(CONFIG_MAPS, "web", f"c-{number}")
            await asyncio.sleep(0.5)
        plane.cluster.create(CONFIG_MAPS, objects.config_map("small"))
        await asyncio.sleep(10)
        assert ("red-web", "small") in world.super.objects(CONFIG_MAPS)
        # A place whose object is as below again is given back, too.
        plane.cluster.create(CONFIG_MAPS, objects.config_map("back"))
        await asyncio.sleep(10)
        session.write_rate.reserve_s(("Secret", "web", "other"), 128 << 20, asyncio.get_running_loop().time())
        before = plane.storage.get(CONFIG_MAPS, "web", "back")["data"]
        _edit(plane, "back", "", "x" * _LARGE)
        await asyncio.sleep(1)
        owed_s = session.write_rate.reserve_s(("Secret", "web", "a"), 1, asyncio.get_running_loop().time())
        value = plane.storage.get(CONFIG_MAPS, "web", "back")
        del value["metadata"]["annotations"]["mark"]
        value["data"] = before
        plane.storage.put(CONFIG_MAPS, value)
        await asyncio.sleep(1)
        again_s = session.write_rate.reserve_s(("Secret", "web", "b"), 1, asyncio.get_running_loop().time())
        assert owed_s - again_s > 1.3


@pytest.mark.parametrize("code", [403, 500])
async def test_what_is_refused_each_time_costs_nothing(code: int) -> None:
    """Nothing of it is in the history of the super cluster; of an answer of 500 that is not known."""
    async with synced_tenant(objects.config_map("there")) as (world, plane):
        rate = sessions_of(world)["red"].write_rate
        rate.set_stored_bytes(_STORED)
        await asyncio.sleep(REFILL_S)
        tried = list[str]()

        def refuse(path: str) -> None:
            if "/configmaps" in path:
                tried.append(path)
                raise ApiError(Status(code=code, reason="", message="denied"))

        world.on_write = refuse
        plane.cluster.create(CONFIG_MAPS, objects.config_map("new", "x" * _LARGE))
        _edit(plane, "there", "1", "x" * _LARGE)
        await asyncio.sleep(20)
        assert len(tried) > 10
        owed_s = rate.reserve_s(("Secret", "web", "a"), _STORED, asyncio.get_running_loop().time())
        assert (owed_s == 0) == (code == 403)


async def test_a_long_wait_is_reported() -> None:
    async with synced_tenant() as (world, plane):
        rate, now_s = sessions_of(world)["red"].write_rate, asyncio.get_running_loop().time()
        assert rate.reserve_s(("ConfigMap", "web", "large"), 1 << 30, now_s) > 600
        plane.cluster.create(PODS, objects.pod("new"))
        plane.cluster.create(CONFIG_MAPS, objects.config_map("new"))
        await asyncio.sleep(10)
        why = "this tenant may write 1048576 bytes a second to the super cluster, and has written more"
        assert {each["involvedObject"]["kind"] for each in plane.objects(EVENTS).values()} == {
            "Pod",
            "ConfigMap",
        }
        assert {message for _, message in reports_of(plane, "new")} == {f"{why}: this write waits"}
        assert world.status()["one"]["notSyncedCount"] == 2


async def test_a_session_that_is_opened_anew_counts_on() -> None:
    """A tenant's control plane that goes back, or takes the most memory, is listed anew."""
    async with synced_tenant(objects.pod("p")) as (world, _):
        session, now_s = sessions_of(world)["red"], asyncio.get_running_loop().time()
        assert session.write_rate.reserve_s(("ConfigMap", "web", "waits"), 1 << 30, now_s) > 600
        assert session.write_rate.try_take_away(("Endpoints", "web", "s"), 64 << 20, now_s)
        assert world.service is not None
        world.service.out_of_memory(session)
        await asyncio.sleep(5)
        opened, now_s = sessions_of(world)["red"], asyncio.get_running_loop().time()
        assert opened is not session
        assert opened.is_attached
        # What waited is not written, and costs nothing; what was written does.
        assert not opened.write_rate.try_take_away(("Endpoints", "web", "s"), 256 << 20, now_s)
        assert opened.write_rate.reserve_s(("ConfigMap", "web", "c"), MIB, now_s) == 0


async def test_who_brings_the_process_down_keeps_a_rate() -> None:
    world = World({"one": "red"})
    written: list[str] = []
    world.on_write = written.append
    async with running(world):
        red = world.tenants["one"]
        furnish(red, *(objects.config_map(f"c-{number}", "x" * _LARGE) for number in range(60)))
        await asyncio.sleep(2 * REFILL_S)
        count = len(written)
        for number in range(4):
            for each in range(60):
                _edit(red, f"c-{each}", str(number))
            await world.kill_syncer()
            world.start_syncer()
            await asyncio.sleep(5)
        large = sum("/namespaces/red-web/configmaps" in path for path in written[count:]) * _LARGE
        assert 0 < large < 4 * (16 * MIB + 5 * MIB) < 4 * 60 * _LARGE


async def test_tokens_have_a_rate() -> None:
    """Beside that of all else: what a tenant writes otherwise takes no tokens away from its pods."""
    async with synced_tenant(objects.pod_with_token("p", 3600)) as (world, _):
        rate = sessions_of(world)["red"].write_rate
        (secret,) = [where for where in world.super.objects(SECRETS) if where[0] == "red-web"]
        assert rate.reserve_s(("ConfigMap", "web", "large"), 1 << 30, asyncio.get_running_loop().time()) > 600
        world.super.storage.delete(SECRETS, *secret)
        await asyncio.sleep(5)
        assert secret in world.super.objects(SECRETS)
        assert rate.try_now(64 * MIB, asyncio.get_running_loop().time())
        world.super.storage.delete(SECRETS, *secret)
        await asyncio.sleep(60)
        assert secret not in world.super.objects(SECRETS)
        await asyncio.sleep(300)
        assert secret in world.super.objects(SECRETS)
        assert world.problems == []


def _messages(plane: Plane) -> Iterator[str]:
    for each in plane.objects(EVENTS).values():
        yield each["message"]
