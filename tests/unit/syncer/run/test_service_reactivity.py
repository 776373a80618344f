# SPDX-License-Identifier: Apache-2.0
"""Whatever changes in whatever order: at rest nothing below leads to what is another tenant's, nothing waits
for what has come, and no patrol was needed for it.

Objects look at each other here: slices and Endpoints at Services and pods' addresses, pods at Secrets, claims
at volumes. Addresses are few, and each goes from pod to pod of both tenants.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, PODS, SECRETS, SERVICES, Resource
from devkit.kube.storage import Object
from syncer.kinds.persistent_volume import KIND as VOLUME
from tenancy import keys
from tests.unit.syncer.histories import HISTORIES, Act, HistoryActor
from tests.unit.syncer.planes import Plane, annotations_of
from tests.unit.syncer.worlds import CLAIMS, DOWN, ENDPOINTS, MARKER, World, running, sessions_of

pytestmark = pytest.mark.asyncio

TENANTS = {"one": "red", "two": "blue"}
# No patrol comes while a history runs, but for those at the start of a tenant.
_NEVER_S = 1_000_000
_ADDRESSES = ("10.244.9.1", "10.244.9.2")
_MAPPED = (ENDPOINTS, ENDPOINT_SLICES)

_TENANTS = st.sampled_from(list(TENANTS))
_NAMES = st.sampled_from(["a", "b"])
_IPS = st.sampled_from(_ADDRESSES)
_ACTS = st.one_of(
    st.tuples(st.just("make_pod"), _TENANTS, _NAMES, st.booleans()),
    st.tuples(st.just("address"), _TENANTS, _NAMES, _IPS),
    st.tuples(st.just("end"), _TENANTS, _NAMES),
    st.tuples(st.just("delete"), _TENANTS, st.sampled_from(["Pod", "Secret"]), _NAMES),
    st.tuples(st.just("delete_by_force"), st.sampled_from(["own", "super", "both"]), _TENANTS, _NAMES),
    st.tuples(st.just("make_slice"), _TENANTS, _NAMES, _IPS, st.sampled_from(["", "a", "b"])),
    st.tuples(st.just("make_endpoints"), _TENANTS, _NAMES, _IPS, st.sampled_from(["", "a", "b"])),
    st.tuples(
        st.just("delete"), _TENANTS, st.sampled_from(["EndpointSlice", "Endpoints", "Service"]), _NAMES
    ),
    st.tuples(st.just("put_service"), _TENANTS, _NAMES, st.booleans(), st.booleans()),
    st.tuples(st.just("make_secret"), _TENANTS, _NAMES),
    st.tuples(st.just("make_claim"), _TENANTS, _NAMES),
    st.tuples(st.just("bind_claim"), _TENANTS, _NAMES),
    st.tuples(st.just("delete_volume"), _TENANTS, _NAMES),
    st.tuples(st.just("fail"), st.sampled_from(["super", *TENANTS]), st.sampled_from([0, 409, 429, 500])),
    st.tuples(st.just("stall"), st.sampled_from(["super", *TENANTS])),
    st.tuples(st.just("flow"), st.sampled_from(["super", *TENANTS])),
    st.tuples(st.just("compact"), st.sampled_from(["super", *TENANTS])),
    st.tuples(st.just("kill")),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.1, 1.0, 4.0])),
)


class _Actor(HistoryActor):
    """Objects that look at each other, in one namespace of each tenant."""

    def _make(self, tenant: str, kind: str, name: str, **fields: Any) -> None:
        plane = self.world.tenants[tenant]
        meta = {"namespace": "web", "name": name, "annotations": {MARKER: plane.marker}} | fields.pop(
            "meta", {}
        )
        plane.cluster.create(DOWN[kind], {"kind": kind, "metadata": meta, **fields})

    # ---- pods

    def make_pod(self, tenant: str, name: str, mounts: bool) -> None:
        spec: Object = {"containers": [{"name": "c", "image": "i"}]}
        if mounts:
            spec["volumes"] = [{"name": "s", "secret": {"secretName": name}}]
        self._make(tenant, "Pod", name, spec=spec)

    def address(self, tenant: str, name: str, address: str) -> None:
        """The pod gets an address that no pod has now."""
        storage, target = self.world.super.storage, f"{TENANTS[tenant]}-web"
        if any(address in addresses_of(each) for each in self.world.super.objects(PODS).values()):
            return
        pod = storage.get(PODS, target, name)
        if (pod.get("status") or {}).get("phase") == "Running":
            pod["status"] |= {"podIP": address, "podIPs": [{"ip": address}]}
            storage.put(PODS, pod)

    def end(self, tenant: str, name: str) -> None:
        pod = self.world.super.storage.get(PODS, f"{TENANTS[tenant]}-web", name)
        pod["status"] = pod.get("status", {}) | {"phase": "Succeeded"}
        self.world.super.storage.put(PODS, pod)

    def delete_by_force(self, where: str, tenant: str, name: str) -> None:
        if where != "super":
            self.world.tenants[tenant].storage.delete(PODS, "web", name)
        if where != "own":
            self.world.super.storage.delete(PODS, f"{TENANTS[tenant]}-web", name)

    # ---- what looks at others

    def make_slice(self, tenant: str, name: str, address: str, pod: str) -> None:
        labels = {"kubernetes.io/service-name": name}
        endpoint: Object = {"addresses": [address]} | _reference(pod)
        self._make(
            tenant, "EndpointSlice", name, meta={"labels": labels}, addressType="IPv4", endpoints=[endpoint]
        )

    def make_endpoints(self, tenant: str, name: str, address: str, pod: str) -> None:
        self._make(tenant, "Endpoints", name, subsets=[{"addresses": [{"ip": address} | _reference(pod)]}])

    def put_service(self, tenant: str, name: str, has_selector: bool, is_refused: bool = False) -> None:
        spec: Object = {"ports": [{"port": 80}]} | ({"selector": {"app": name}} if has_selector else {})
        if is_refused:
            spec["externalIPs"] = ["192.0.2.1"]
        storage = self.world.tenants[tenant].storage
        if storage.has(SERVICES, "web", name):
            found = storage.get(SERVICES, "web", name)
            for field in ("selector", "externalIPs"):
                found["spec"].pop(field, None)
            found["spec"] |= spec
            storage.put(SERVICES, found)
        else:
            self._make(tenant, "Service", name, spec=spec)

    def make_secret(self, tenant: str, name: str) -> None:
        self._make(tenant, "Secret", name, data={"k": "dg=="})

    def delete(self, tenant: str, kind: str, name: str) -> None:
        self.world.tenants[tenant].cluster.delete(DOWN[kind], "web", name)

    def make_claim(self, tenant: str, name: str) -> None:
        self._make(tenant, "PersistentVolumeClaim", name, spec={"accessModes": ["ReadWriteOnce"]})

    def bind_claim(self, tenant: str, name: str) -> None:
        target, storage = f"{TENANTS[tenant]}-web", self.world.super.storage
        claim = storage.get(CLAIMS, target, name)
        volume = f"pv-{claim['metadata']['uid']}"
        ref = {"namespace": target, "name": name, "uid": claim["metadata"]["uid"]}
        spec = {"claimRef": ref, "capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}}
        value = {"kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec}
        made = self.world.super.cluster.create(VOLUME.resource, value)
        storage.put(VOLUME.resource, made | {"status": {"phase": "Bound"}})
        claim["spec"]["volumeName"], claim["status"] = volume, {"phase": "Bound"}
        storage.put(CLAIMS, claim)

    def delete_volume(self, tenant: str, name: str) -> None:
        claim = self.world.super.storage.get(CLAIMS, f"{TENANTS[tenant]}-web", name)
        self.world.super.storage.delete(VOLUME.resource, "", f"pv-{claim['metadata']['uid']}")


def _reference(pod: str) -> Object:
    return {"targetRef": {"kind": "Pod", "namespace": "web", "name": pod}} if pod else {}


def addresses_of(pod: Object) -> set[str]:
    """The addresses that a pod holds; one that has ended holds none."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return set()
    return {each["ip"] for each in status.get("podIPs") or ()}


def _entries(value: Object) -> Iterator[tuple[str, Object]]:
    """Each address of a slice or of Endpoints, with what it says of its pod."""
    for each in value.get("endpoints") or ():
        for address in each["addresses"]:
            yield address, each.get("targetRef") or {}
    for subset in value.get("subsets") or ():
        for each in subset.get("addresses") or ():
            yield each["ip"], each.get("targetRef") or {}


def _goes_down(plane: Plane, resource: Resource, value: Object, own: set[str]) -> bool:
    """Written anew, from docs/spec: what the product does is not asked."""
    where = "web", value["metadata"]["name"]
    service = plane.objects(SERVICES).get(where)
    if service is not None and service["spec"].get("selector"):
        return False
    if resource == ENDPOINT_SLICES and where in plane.objects(ENDPOINTS):
        return False
    return all(address in own for address, _ in _entries(value))


def _is_refused(plane: Plane, name: str) -> bool:
    """Whether a Service does not go down as it is: what is below hangs on how it was before."""
    service = plane.objects(SERVICES).get(("web", name))
    return service is not None and "externalIPs" in service["spec"]


def _problems(world: World) -> Iterator[str]:
    for tenant, plane in world.tenants.items():
        target = f"{TENANTS[tenant]}-web"
        pods = {key[1]: each for key, each in world.super.objects(PODS).items() if key[0] == target}
        own = set().union(*(addresses_of(each) for each in pods.values()))
        for resource in _MAPPED:
            below = {
                name: each
                for (namespace, name), each in world.super.objects(resource).items()
                if namespace == target
            }
            for name, each in below.items():
                if keys.UID not in annotations_of(each):
                    continue
                for address, target_ref in _entries(each):
                    if address not in own:
                        yield f"{target}/{name} {resource.plural} leads to {address}, not the tenant's"
                    if target_ref and target_ref["uid"] not in {p["metadata"]["uid"] for p in pods.values()}:
                        yield f"{target}/{name} {resource.plural} names a pod that is not there"
            for (_, name), each in plane.objects(resource).items():
                is_expected = _goes_down(plane, resource, each, own)
                if is_expected != (name in below) and not _is_refused(plane, name):
                    yield f"{target}/{name} {resource.plural}: is there: {name in below}, of {sorted(own)}"
        secrets = {key[1] for key in plane.objects(SECRETS)}
        for (_, name), pod in plane.objects(PODS).items():
            needs = {each["secret"]["secretName"] for each in pod["spec"].get("volumes") or ()}
            if needs <= secrets and name not in pods and not pod["spec"].get("nodeName"):
                yield f"{target}/{name} waits for a Secret that is there"
        yield from _volume_problems(world, plane, target)


def _volume_problems(world: World, plane: Plane, target: str) -> Iterator[str]:
    volumes = world.super.objects(VOLUME.resource)
    for (_, name), each in plane.objects(VOLUME.resource).items():
        if ("", name) not in volumes or volumes["", name]["spec"]["claimRef"]["namespace"] != target:
            yield f"{plane.name} has the volume {name}"
        if each["spec"]["claimRef"]["namespace"] != "web":
            yield f"{plane.name} has a volume of {each['spec']['claimRef']}"
    for (_, name), claim in plane.objects(CLAIMS).items():
        found = world.super.objects(CLAIMS).get((target, name))
        volume = "" if found is None else found["spec"].get("volumeName", "")
        if volume and ("", volume) in volumes and claim["spec"].get("volumeName") != volume:
            yield f"{target}/{name} waits for its volume {volume}"


async def _run(acts: list[Act]) -> None:
    world = World(TENANTS, patrol_s=_NEVER_S)
    async with running(world):
        actor = _Actor(world)
        for plane in world.tenants.values():
            plane.cluster.create(NAMESPACES, {"metadata": {"name": "web"}})
        await asyncio.sleep(5)
        for act in acts:
            await actor.act(*act)
        await world.rest(60)
        found = [*world.problems, *_problems(world)]
        assert found == [], "\n".join(found)
        for session in sessions_of(world).values():
            assert session.waits.lookups <= 500


_REUSED: list[Act] = [
    ("make_pod", "one", "a", False),
    ("put_service", "one", "a", False),
    ("put_service", "one", "b", False),
    ("wait", 4.0),
    ("address", "one", "a", _ADDRESSES[0]),
    ("make_slice", "one", "a", _ADDRESSES[0], ""),
    ("make_endpoints", "one", "b", _ADDRESSES[0], "a"),
    ("make_pod", "two", "a", False),
    ("wait", 4.0),
    ("delete_by_force", "both", "one", "a"),
    ("address", "two", "a", _ADDRESSES[0]),
]
_COMES_LATE: list[Act] = [
    ("make_pod", "one", "a", True),
    ("make_slice", "one", "a", _ADDRESSES[0], "a"),
    ("make_claim", "one", "a"),
    ("wait", 4.0),
    ("bind_claim", "one", "a"),
    ("make_secret", "one", "a"),
    ("wait", 4.0),
    ("address", "one", "a", _ADDRESSES[0]),
    ("put_service", "one", "a", True),
    ("wait", 4.0),
    ("put_service", "one", "a", False),
]
_REFUSED: list[Act] = [*_REUSED[:9], ("put_service", "one", "b", True, True), ("wait", 4.0), *_REUSED[9:]]
_UNSEEN: list[Act] = [*_REUSED[:9], ("stall", "super"), *_REUSED[9:], ("compact", "super"), ("kill",)]


@settings(HISTORIES, max_examples=15)
@example(_REUSED)
@example(_COMES_LATE)
@example(_UNSEEN)
@example(_REFUSED)
@given(st.lists(_ACTS, max_size=30))
async def test_no_order_of_changes_leads_astray(acts: list[Act]) -> None:
    await _run(acts)
