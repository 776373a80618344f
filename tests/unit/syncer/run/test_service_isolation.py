# SPDX-License-Identifier: Apache-2.0
"""Tenants are isolated whatever they write, whatever outsiders do, and whatever is lost on the way."""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemonkit.kube.resources import NAMESPACES, PODS
from devkit.kube.storage import Object
from tenancy import keys, names
from tests.unit.syncer.histories import HISTORIES, Act, HistoryActor
from tests.unit.syncer.planes import annotations_of
from tests.unit.syncer.worlds import DOWN, EVENTS, FOREIGN, FORGED, MARKER, World, running

pytestmark = pytest.mark.asyncio

# Two keys of which one continues the other, as `red` and `red-blue`, are refused: `ClusterKeyTaken`.
TENANTS = {"one": "red", "two": "redblue"}
# Two namespaces of `red` whose cut names end in one hash.
_N = "n" * 55
HASHED = (f"{_N}00000170", f"{_N}000002db")
ALL_NAMESPACES = ("blue-green", "green", "blue", "web", *HASHED)
_TENANTS = st.sampled_from(list(TENANTS))
_NAMES = st.sampled_from(["a", "b"])
_SIDES = st.sampled_from(["super", *TENANTS])

FORGERY = {
    keys.CLUSTER: FORGED,
    keys.NAMESPACE: FORGED,
    keys.UID: FORGED,
    keys.VC_NAME: FORGED,
    keys.VC_UID: FORGED,
    keys.SUPER_PUBLIC: "true",
    keys.POD_TOKENS: FORGED,
    keys.CONTAINERS: FORGED,
    keys.GATE_OPENED: FORGED,
    keys.TRANSPARENT_PREFIX + "a": FORGED,
    "node.vcnode.io/a": FORGED,
}


@st.composite
def _histories(draw: st.DrawFn) -> list[Act]:
    """Acts on few names, so that they meet: two or three namespaces, some of which are there, and kinds."""
    chosen = draw(st.lists(st.sampled_from(ALL_NAMESPACES), min_size=2, max_size=3, unique=True))
    namespaces = st.sampled_from(chosen)
    kinds = st.sampled_from(draw(st.lists(st.sampled_from(list(DOWN)), min_size=1, max_size=3, unique=True)))
    acts = st.one_of(
        st.tuples(st.just("namespace"), _TENANTS, namespaces, st.booleans()),
        st.tuples(st.just("make"), _TENANTS, kinds, namespaces, _NAMES, st.booleans()),
        st.tuples(st.just("edit"), _TENANTS, kinds, namespaces, _NAMES),
        st.tuples(st.just("delete"), _TENANTS, kinds, namespaces, _NAMES),
        st.tuples(st.just("delete namespace"), _TENANTS, namespaces),
        st.tuples(st.just("recreate tenant"), _TENANTS),
        st.tuples(st.just("foreign namespace"), _TENANTS, namespaces),
        st.tuples(st.just("foreign object"), _TENANTS, kinds, namespaces, _NAMES),
        st.tuples(st.just("outsider edits"), _TENANTS, kinds, namespaces, _NAMES),
        st.tuples(st.just("outsider deletes"), _TENANTS, kinds, namespaces, _NAMES),
        st.tuples(st.just("outsider strips"), _TENANTS, kinds, namespaces, _NAMES),
        st.tuples(st.just("outsider takes over"), _TENANTS, namespaces),
        st.tuples(st.just("event"), _TENANTS, namespaces, _NAMES),
        st.tuples(st.just("fail"), _SIDES, st.sampled_from([0, 409, 429, 500, 503])),
        st.tuples(st.just("lose answer"), _SIDES),
        st.tuples(st.just("stall"), _SIDES),
        st.tuples(st.just("flow"), _SIDES),
        st.tuples(st.just("compact"), _SIDES),
        st.tuples(st.just("kill")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.01, 0.1, 1.0, 4.0])),
    )
    first = [
        ("namespace", tenant, each, False) for tenant in TENANTS for each in chosen if draw(st.booleans())
    ]
    return [*first, ("wait", 1.0), *draw(st.lists(acts, max_size=40))]


def _object(kind: str, namespace: str, name: str, marker: str, *, is_forged: bool) -> Object:
    notes = {MARKER: marker} | (FORGERY if is_forged else {})
    labels = {"app": name} | (FORGERY if is_forged else {})
    value: Object = {
        "metadata": {"namespace": namespace, "name": name, "annotations": notes, "labels": labels}
    }
    match kind:
        case "Pod":
            env = [{"name": "MARKER", "value": marker}]
            value["spec"] = {"containers": [{"name": "c", "image": "i", "env": env}]}
        case "Service":
            value["spec"] = {"selector": {"app": name}, "ports": [{"port": 80}]}
        case "Endpoints":
            value["subsets"] = [{"addresses": [{"ip": "198.51.100.7"}], "ports": [{"port": 80}]}]
        case "EndpointSlice":
            labels["kubernetes.io/service-name"] = "without-a-selector"
            value |= {"addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]}
        case "ConfigMap" | "Secret":
            value["data"] = {"marker": marker}
        case "PersistentVolumeClaim":
            value["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        case "Ingress":
            value["spec"] = {"rules": [{"host": "a.example.com"}]}
        case "NetworkPolicy":
            value["spec"] = {"podSelector": {"matchLabels": {"app": name}}}
        case "PodDisruptionBudget":
            value["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    return value


class _Actor(HistoryActor):
    """Tenants and outsiders, by few names."""

    def _target(self, tenant: str, namespace: str) -> str:
        found = names.super_namespace(TENANTS[tenant], namespace)
        assert isinstance(found, str)
        return found

    # ---- tenants

    def namespace(self, tenant: str, name: str, is_forged: bool) -> None:
        plane = self.world.tenants[tenant]
        value: Object = {"metadata": {"name": name, "annotations": {MARKER: plane.marker}}}
        if is_forged:
            value["metadata"]["annotations"] |= FORGERY
            value["metadata"]["labels"] = dict(FORGERY)
        plane.cluster.create(NAMESPACES, value)

    def make(self, tenant: str, kind: str, namespace: str, name: str, is_forged: bool) -> None:
        plane = self.world.tenants[tenant]
        plane.cluster.create(DOWN[kind], _object(kind, namespace, name, plane.marker, is_forged=is_forged))

    def edit(self, tenant: str, kind: str, namespace: str, name: str) -> None:
        plane = self.world.tenants[tenant]
        found = plane.storage.get(DOWN[kind], namespace, name)
        found["metadata"].setdefault("annotations", {})["example.com/edited"] = str(self.count)
        if kind in ("ConfigMap", "Secret"):
            found["data"] = {"marker": plane.marker, "edited": str(self.count)}
        plane.cluster.update(DOWN[kind], found)

    def delete(self, tenant: str, kind: str, namespace: str, name: str) -> None:
        self.world.tenants[tenant].cluster.delete(DOWN[kind], namespace, name)

    def delete_namespace(self, tenant: str, name: str) -> None:
        self.world.tenants[tenant].cluster.delete(NAMESPACES, "", name)

    def recreate_tenant(self, tenant: str) -> None:
        self.world.make_tenant(tenant)

    # ---- outsiders in the super cluster

    def foreign_namespace(self, tenant: str, namespace: str) -> None:
        made = self.world.super.cluster.create(
            NAMESPACES, {"metadata": {"name": self._target(tenant, namespace)}}
        )
        self.world.foreign[NAMESPACES, ("", made["metadata"]["name"])] = made

    def foreign_object(self, tenant: str, kind: str, namespace: str, name: str) -> None:
        target = self._target(tenant, namespace)
        value = _object(kind, target, name, FOREIGN, is_forged=False)
        made = self.world.super.cluster.create(DOWN[kind], value)
        self.world.foreign[DOWN[kind], (target, name)] = made

    def outsider_edits(self, tenant: str, kind: str, namespace: str, name: str) -> None:
        target = self._target(tenant, namespace)
        found = self.world.super.storage.get(DOWN[kind], target, name)
        if (DOWN[kind], (target, name)) not in self.world.foreign:
            found["metadata"].setdefault("labels", {})["example.com/outsider"] = "x"
            if "data" in found:
                found["data"] = {"outsider": FOREIGN}
            self.world.super.cluster.update(DOWN[kind], found)

    def outsider_deletes(self, tenant: str, kind: str, namespace: str, name: str) -> None:
        target = self._target(tenant, namespace)
        self.world.super.cluster.delete(DOWN[kind], target, name)
        self.world.foreign.pop((DOWN[kind], (target, name)), None)

    def outsider_strips(self, tenant: str, kind: str, namespace: str, name: str) -> None:
        target = self._target(tenant, namespace)
        found = self.world.super.storage.get(DOWN[kind], target, name)
        found["metadata"]["annotations"] = {}
        stripped = self.world.super.cluster.update(DOWN[kind], found)
        if kind not in ("Endpoints",) and name != "default":
            self.world.foreign[DOWN[kind], (target, name)] = stripped

    def outsider_takes_over(self, tenant: str, namespace: str) -> None:
        """Give a super namespace the annotations of a tenant that would have the same name."""
        plane = self.world.tenants[tenant]
        own = plane.storage.get(NAMESPACES, "", namespace)
        found = self.world.super.storage.get(NAMESPACES, "", self._target(tenant, namespace))
        found["metadata"]["annotations"] = annotations_of(found) | {
            keys.CLUSTER: TENANTS[tenant],
            keys.NAMESPACE: namespace,
            keys.UID: own["metadata"]["uid"],
            keys.VC_UID: self.world.uids[tenant],
        }
        self.world.foreign.pop((NAMESPACES, ("", found["metadata"]["name"])), None)
        self.world.super.cluster.update(NAMESPACES, found)

    def event(self, tenant: str, namespace: str, name: str) -> None:
        """An Event about a pod, with names of the super cluster in its text."""
        target = self._target(tenant, namespace)
        pod = self.world.super.storage.get(PODS, target, name)
        about = {"kind": "Pod", "namespace": target, "name": name, "uid": pod["metadata"]["uid"]}
        meta = {"namespace": target, "name": f"{name}.{self.count}"}
        text = f"pod {target}/{name} is here"
        value = {
            "metadata": meta,
            "involvedObject": about,
            "reason": "Seen",
            "message": text,
            "type": "Normal",
        }
        self.world.super.cluster.create(EVENTS, value)


async def _run(acts: list[Act]) -> None:
    world = World(TENANTS)
    async with running(world):
        actor = _Actor(world)
        await asyncio.sleep(5)
        for number, act in enumerate(acts):
            await actor.act(*act)
            assert not world.problems, "\n".join([*world.problems, f"after {number}: {act}"])
        await world.settle()
        assert not world.problems, "\n".join(world.problems)


_BUSY: list[Act] = [
    *(("namespace", tenant, namespace, True) for tenant in TENANTS for namespace in ("web", "green")),
    *(("make", tenant, kind, "web", "a", True) for tenant in TENANTS for kind in DOWN),
    ("wait", 4.0),
]


def _each_kind(act: str, tenant: str, name: str, *more: Any, namespace: str = "web") -> list[Act]:
    return [(act, tenant, kind, namespace, name, *more) for kind in DOWN]


_IN_THE_WAY: list[Act] = [
    *_BUSY,
    *_each_kind("foreign object", "one", "b"),
    *_each_kind("make", "one", "b", False),
    ("wait", 4.0),
    *_each_kind("edit", "one", "b"),
    *_each_kind("delete", "one", "b"),
]
_STRIPPED: list[Act] = [
    *_BUSY,
    *_each_kind("outsider strips", "one", "a"),
    ("wait", 1.0),
    *_each_kind("edit", "one", "a"),
    ("wait", 1.0),
    *_each_kind("delete", "one", "a"),
]
_JOINED: list[Act] = [
    ("namespace", "one", "blue-green", False),
    ("wait", 4.0),
    ("namespace", "two", "green", False),
    *_each_kind("make", "one", "a", False, namespace="blue-green"),
    *_each_kind("make", "two", "a", False, namespace="green"),
    ("wait", 4.0),
    ("outsider takes over", "two", "green"),
    ("wait", 4.0),
    *_each_kind("edit", "one", "a", namespace="blue-green"),
    *_each_kind("delete", "two", "a", namespace="green"),
    ("delete namespace", "one", "blue-green"),
]
_HASHED: list[Act] = [
    ("namespace", "one", HASHED[0], False),
    ("wait", 4.0),
    ("namespace", "one", HASHED[1], False),
    *(act for each in HASHED for act in _each_kind("make", "one", "a", False, namespace=each)),
    ("wait", 4.0),
    ("delete namespace", "one", HASHED[1]),
]
_RECREATED: list[Act] = [*_BUSY, ("recreate tenant", "one"), ("wait", 0.0), *_BUSY]


@settings(HISTORIES, max_examples=12)
@example([])
@example(_BUSY)
@example(_IN_THE_WAY)
@example(_STRIPPED)
@example(_JOINED)
@example(_HASHED)
@example(_RECREATED)
@given(_histories())
async def test_no_order_of_events_mixes_tenants(acts: list[Act]) -> None:
    """The invariants hold at each write and each change, and at rest both sides agree."""
    await _run(acts)
