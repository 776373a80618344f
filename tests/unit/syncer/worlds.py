# SPDX-License-Identifier: Apache-2.0
"""A whole syncer between fake clusters in one process, on virtual time, and the invariants of isolation.

Each write that the syncer sends to the super cluster is checked before it is carried out, by the ownership
annotations as they were when the syncer could last see them. Each object carries the marker of the tenant
that made it. So whose text stands where is seen in the text itself.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from daemonkit.fairness.scheduler import TenantScheduler
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Key,
    Resource,
)
from daemonkit.tasks import Tasks
from devkit.kube import wire as wire
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Selection, Storage
from devkit.syncer.fake_node import FakeNode
from syncer.config import (
    PatrolConfig,
    ShardingConfig,
    SyncerConfiguration,
    TenantsConfig,
    VirtualClustersConfig,
    VnAgentConfig,
)
from syncer.kinds import event as events
from syncer.kinds.configmap import ROOT_CA, TENANT_ROOT_CA
from syncer.kinds.metadata import LABEL_PREFIX
from syncer.run.service import SyncerService
from syncer.sharding.lease_objects import LEASES
from syncer.sources.policies import SYNC_POLICIES
from syncer.surroundings import ProvenClient, Surroundings
from syncer.tenant.session import TenantSession
from tenancy import keys, names
from tests.unit.syncer.planes import Plane, SyncerClient, annotations_of

EVENTS = events.KIND.resource
ACCOUNTS = Resource("", "v1", "serviceaccounts")
ENDPOINTS = Resource("", "v1", "endpoints")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses")
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")

# What tenants make, each by the kind's name.
DOWN: Mapping[str, Resource] = {
    "Pod": PODS,
    "Service": SERVICES,
    "Endpoints": ENDPOINTS,
    "EndpointSlice": ENDPOINT_SLICES,
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "ServiceAccount": ACCOUNTS,
    "PersistentVolumeClaim": CLAIMS,
    "Ingress": INGRESSES,
    "NetworkPolicy": POLICIES,
    "PodDisruptionBudget": BUDGETS,
}
_KIND_OF = {resource.plural: kind for kind, resource in DOWN.items()}
EVERY = (*DOWN.values(), NAMESPACES, EVENTS)
MARKER = "example.com/marker"
FOREIGN = "marker-of-the-super-cluster"
FORGED = "forged-by-a-tenant"
# Keys of ours whose values carry those of tenants, for the insides of pods and for selectors.
_CARRYING = (LABEL_PREFIX, keys.MOUNTED_LABELS, keys.MOUNTED_ANNOTATIONS, keys.MOUNTED_METADATA_PREFIX)
# A cache without a fault is current within this time; a lost answer is the longest of it.
LAG_S = 2.0
START_S = 1_700_000_000.0
# As measured: a look-up and a plan of a small object.
STEP_NS = 50_000


def _text(value: object) -> str:
    return json.dumps(value)


class _Probe:
    async def probe(self, address: str, port: int) -> bool:
        return True


async def at_once(_: str) -> None:
    """Answer at once."""


class World:
    """`problems` has each breach of an invariant, in words."""

    def __init__(
        self,
        tenants: Mapping[str, str],
        sharding: ShardingConfig | None = None,
        *,
        max_cache_bytes: int = 64 << 20,
        patrol_s: int = 30,
        vn_agent: VnAgentConfig | None = None,
        step_ns: Callable[[], int] = lambda: STEP_NS,
    ) -> None:
        """Tenants by the names of their VirtualClusters, with their cluster keys.

        Each step of a tenant takes `step_ns`: whose turn is next follows from it, and not from the machine.
        """
        self._step_ns = step_ns
        self._work_ns = 0
        self._sharding = sharding
        self._vn_agent = vn_agent or VnAgentConfig()
        self._max_cache_bytes = max_cache_bytes
        self._patrol_s = patrol_s
        self.problems: list[str] = []
        self._ports = 1000
        self.writes = 0
        self.reads: list[str] = []
        self.on_write: Callable[[str], None] = lambda _: None
        self.before_answer: Callable[[str], Awaitable[None]] = at_once
        self.keys = dict(tenants)
        self.super = self._plane("super")
        self.tenants: dict[str, Plane] = {}
        self.uids: dict[str, str] = {}
        self.foreign: dict[tuple[Resource, Key], Object] = {}
        self._states: dict[tuple[Resource, Key], list[tuple[float, Object | None]]] = {}
        self._revision: dict[str, int] = {}
        self._past_marks: dict[str, str] = {}
        self._watch(self.super)
        self._tasks = Tasks("world")
        self._before: set[asyncio.Task[Any]] = set()
        self.service: SyncerService | None = None
        self._node = FakeNode(InProcessClient(self.super.cluster), ("node-0", "node-1"), clock=self._wall)
        for name in tenants:
            self.make_tenant(name)

    # ---- planes

    def _plane(self, name: str) -> Plane:
        flows, answers = asyncio.Event(), asyncio.Event()
        flows.set()
        answers.set()
        cluster = Cluster(Storage(), ClusterSettings(), clock=self._wall)
        # Nothing listens there: plain HTTP is for loopback alone.
        self._ports += 1
        return Plane(name, f"http://127.0.0.1:{self._ports}", cluster, flows, answers, [])

    def make_tenant(self, name: str) -> Plane:
        """A VirtualCluster with a new control plane; one of this name is replaced."""
        self.end_tenant(name)
        made = self.super.storage.create(
            VIRTUAL_CLUSTERS,
            {
                "apiVersion": "tenancy.x-k8s.io/v1alpha1",
                "kind": "VirtualCluster",
                "metadata": {"namespace": "tenants", "name": name},
            },
        )
        plane = self._plane(f"{name}-{made['metadata']['uid'][:8]}")
        self.tenants[name], self.uids[name] = plane, made["metadata"]["uid"]
        self._watch(plane)
        kubeconfig = wire.kubeconfig(plane.url, None, None, token="t")
        made["metadata"]["annotations"] = {keys.ADMIN_KUBECONFIG: _base64(kubeconfig)}
        made["status"] = {"phase": "Running", "clusterNamespace": self.keys[name]}
        self.super.storage.put(VIRTUAL_CLUSTERS, made)
        return plane

    def end_tenant(self, name: str) -> None:
        """Delete a VirtualCluster. What it has in the super cluster stays."""
        if name in self.tenants:
            self._past_marks[self.tenants[name].marker] = self.keys[name]
            self.super.storage.delete(VIRTUAL_CLUSTERS, "tenants", name)
            del self.tenants[name], self.uids[name]

    def release(self, name: str, token: str) -> None:
        cluster = self.super.storage.get(VIRTUAL_CLUSTERS, "tenants", name)
        cluster["metadata"]["annotations"][keys.RELEASE_HELD] = token
        self.super.storage.put(VIRTUAL_CLUSTERS, cluster)

    def _wall(self) -> float:
        return START_S + asyncio.get_running_loop().time()

    # ---- the syncer

    def _read_work_ns(self) -> int:
        """It is read before and after each step."""
        self._work_ns += self._step_ns()
        return self._work_ns

    def _open(self, credentials: Credentials, *_: object) -> ProvenClient:
        url = credentials.current().access.server
        plane = next((each for each in self.tenants.values() if each.url == url), None)
        return SyncerClient(self, plane or self._plane("gone"))

    async def start(self) -> None:
        """Start the super cluster's node, then the syncer."""
        await self._node.register()
        self._tasks.spawn(self._node.run(), "node")
        self._before = asyncio.all_tasks()
        self.start_syncer()

    def start_syncer(self) -> None:
        clock = asyncio.get_running_loop().time
        outside = Surroundings(
            lambda *_: SyncerClient(self, self.super),
            self._open,
            _Probe(),
            clock,
            self._wall,
            lambda: 0.5,
            lambda: None,
            lambda: TenantScheduler(clock_ns=self._read_work_ns, processor_clock_ns=self._read_work_ns),
        )
        config = SyncerConfiguration(
            TenantsConfig(virtual_clusters=VirtualClustersConfig(), max_cache_bytes=self._max_cache_bytes),
            vn_agent=self._vn_agent,
            resources=("ingress",),
            patrol=PatrolConfig(interval_seconds=self._patrol_s),
            sharding=self._sharding,
        )
        self.service = SyncerService(config, {}, outside)
        self.service.start_parts()

    async def kill_syncer(self) -> None:
        """End it as `kill -9` does: where each task stands, and nothing is finished."""
        tasks = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for plane in (self.super, *self.tenants.values()):
            plane.storage.on_write[:] = [
                each
                for each in plane.storage.on_write
                if not isinstance(getattr(each, "__self__", None), SyncerClient)
            ]

    async def close(self) -> None:
        await self.kill_syncer()
        await self._tasks.close(1.0)

    def status(self) -> Mapping[str, Any]:
        """The page `/status` of each tenant, by the name of its VirtualCluster."""
        assert self.service is not None
        found: Any = self.service.status()["tenants"]
        return {source.split("/")[1]: each for source, each in found.items()}

    # ---- history of the super cluster

    def _watch(self, plane: Plane) -> None:
        def note(resource: Resource | None) -> None:
            since, self._revision[plane.name] = self._revision.get(plane.name, 1), plane.storage.revision
            for each in EVERY if resource is None else (resource,):
                for kind, value in plane.storage.events(Selection(each), since):
                    self._note(plane, each, value, is_deleted=kind == "DELETED")

        self._revision[plane.name] = plane.storage.revision
        plane.storage.on_write.append(note)

    def _note(self, plane: Plane, resource: Resource, value: Object, *, is_deleted: bool) -> None:
        if plane is self.super:
            where = (value["metadata"].get("namespace", ""), value["metadata"]["name"])
            states = self._states.setdefault((resource, where), [])
            states.append((asyncio.get_running_loop().time(), None if is_deleted else value))
        elif not is_deleted:
            self._check_own(plane, resource, value)

    def _recent(self, resource: Resource, where: Key) -> list[Object | None]:
        """What an object has been since the syncer's cache may be of."""
        stalled_s = self.super.stalled_s
        since = asyncio.get_running_loop().time() - LAG_S if stalled_s is None else stalled_s - LAG_S
        states = self._states.get((resource, where), [])
        before = [value for at, value in states if at < since]
        return [*before[-1:], *(value for at, value in states if at >= since)]

    def _recent_owners(self, namespace: str) -> set[tuple[str, str]]:
        found = set()
        for value in self._recent(NAMESPACES, ("", namespace)):
            notes = {} if value is None else annotations_of(value)
            if names.super_namespace(notes.get(keys.CLUSTER, ""), notes.get(keys.NAMESPACE, "")) == namespace:
                found.add((notes[keys.CLUSTER], notes.get(keys.VC_UID, "")))
        return found

    # ---- invariants at each write

    def note_write(self, plane: Plane, method: str, path: str, body: bytes | None) -> None:
        """A write of the syncer, before it is carried out."""
        self.writes += 1
        self.on_write(path)
        if plane is not self.super:
            return
        target = wire.full_target(path)
        value: Object = json.loads(body) if body else {}
        for problem in self._write_problems(target, method, value):
            self.problems.append(f"{method} {path}: {problem}")

    def _write_problems(self, target: wire.Target, method: str, value: Object) -> Iterator[str]:
        if target.resource in (VIRTUAL_CLUSTERS, LEASES):
            return
        for part in ("labels", "annotations"):
            for key, text in (value.get("metadata", {}).get(part) or {}).items():
                if FORGED in str(text) and _is_ours(key) and not key.startswith(_CARRYING):
                    yield f"a tenant's {key}"
        if target.resource == NAMESPACES:
            name = target.name or value["metadata"]["name"]
            if method == "POST":
                notes = annotations_of(value)
                if names.super_namespace(notes[keys.CLUSTER], notes[keys.NAMESPACE]) != name:
                    yield "not the name of its annotations"
            elif not self._recent_owners(name):
                yield "a Namespace of nobody"
            return
        if not target.resource.is_namespaced:
            yield "not the syncer's to write"
            return
        owners = self._recent_owners(target.namespace)
        if not owners:
            yield "in a namespace of nobody"
        authors = {self.keys[name] for name, each in self.tenants.items() if each.marker in _text(value)}
        authors |= {key for marker, key in self._past_marks.items() if marker in _text(value)}
        if authors - {key for key, _ in owners}:
            yield f"of {authors} in the namespace of {owners}"
        if method != "POST" and not self._is_claimed(target, method, {key for key, _ in owners}):
            yield "an object that is not this tenant's"

    def _is_claimed(self, target: wire.Target, method: str, owners: set[str]) -> bool:
        recent = self._recent(target.resource, (target.namespace, target.name))
        claims = {None if each is None else annotations_of(each).get(keys.CLUSTER) for each in recent}
        is_adoptable = target.resource in (ACCOUNTS, ENDPOINTS) and method == "PATCH"
        return bool(claims & owners) or (is_adoptable and None in claims)

    def _check_own(self, plane: Plane, resource: Resource, value: Object) -> None:
        text = _text(value)
        marks = {each.marker for each in self.tenants.values()} | set(self._past_marks) | {FOREIGN}
        for each in marks - {plane.marker}:
            if each in text:
                self.problems.append(f"{plane.name} {resource} {value['metadata']['name']} has {each}")
        own = next((self.keys[name] for name, each in self.tenants.items() if each is plane), "")
        for namespace, found in self.super.objects(NAMESPACES).items():
            key = annotations_of(found).get(keys.CLUSTER, "")
            # The other's namespace may be called as this one's key, which is no secret to it.
            if key and key != own and namespace[1] not in own and namespace[1] in text:
                self.problems.append(f"{plane.name} {resource} {value['metadata']['name']} has {namespace}")

    # ---- at rest

    async def heal(self) -> None:
        """Take all faults back."""
        for plane in (self.super, *self.tenants.values()):
            plane.failures.clear()
            plane.lost, plane.stalled_s = 0, None
            plane.flows.set()

    async def rest(self, pause_s: float) -> None:
        """Take all faults back and wait, and again for what is held then: that is released."""
        await self.heal()
        for _ in range(4):
            await asyncio.sleep(pause_s)
            held = {name: each.get("held") or {} for name, each in self.status().items()}
            tokens = [(name, hold["token"]) for name, holds in held.items() for hold in holds.values()]
            if not tokens:
                break
            for name, token in tokens:
                self.release(name, token)

    async def settle(self) -> None:
        """Wait until nothing more is to do, releasing what is held; then check that both sides agree."""
        await self.rest(100)
        assert self.service is not None
        writes = self._writes_of_objects()
        await self.service.patrol()
        await asyncio.sleep(5)
        if self._writes_of_objects() != writes:
            self.problems.append("a further patrol changed objects")
        self._check_rest()
        self.check_patrols()

    def check_patrols(self) -> None:
        """Check that a patrol finds what it finds if it compares all pairs."""
        for session in sessions_of(self).values():
            found, wanted = (
                {item for items in each for item, _ in items}
                for each in (session.compared.unverified(1_000), session.caches.unverified(1_000))
            )
            if found != wanted:
                self.problems.append(f"a patrol of {session.tenant.key} misses {found ^ wanted}")

    def _writes_of_objects(self) -> tuple[int, ...]:
        """Revisions without Leases, Nodes and Events."""
        planes = (self.super, *self.tenants.values())
        return tuple(
            max(each.storage.written(one) for one in (*DOWN.values(), NAMESPACES)) for each in planes
        )

    def _check_rest(self) -> None:
        status = self.status()
        for name, plane in self.tenants.items():
            page = status.get(name)
            if page is None or page["phase"] != "Synced":
                self.problems.append(f"{name} is not synced: {page}")
                continue
            reported = {(each["kind"], each["object"]) for each in page["notSynced"]}
            self._check_down(name, plane, reported)
            self._check_up(name, plane, reported)
        for (resource, where), value in self.foreign.items():
            now = self.super.objects(resource).get(where)
            if now is None and resource != NAMESPACES and self._is_without_home(resource, where, value):
                continue  # went with its namespace
            if now is None or _content(now) != _content(value):
                self.problems.append(f"foreign {resource} {where} was changed: {now}")

    def _is_without_home(self, resource: Resource, where: Key, value: Object) -> bool:
        """Whether the Namespace in which an object of this UID was made is gone, or another one by now."""
        uid = value["metadata"]["uid"]
        states = self._states[resource, where]
        made_s = min(at for at, each in states if each is not None and each["metadata"]["uid"] == uid)
        homes = self._states[NAMESPACES, ("", where[0])]
        home = [each for at, each in homes if at <= made_s and each is not None][-1]
        now = self.super.objects(NAMESPACES).get(("", where[0]))
        return now is None or now["metadata"]["uid"] != home["metadata"]["uid"]

    def _owned(self, name: str, plane: Plane, namespace: str) -> str | None:
        """The super namespace, if it is this one's."""
        target = names.super_namespace(self.keys[name], namespace)
        own = plane.objects(NAMESPACES).get(("", namespace))
        found = self.super.objects(NAMESPACES).get(("", target)) if isinstance(target, str) else None
        notes = {} if found is None else annotations_of(found)
        expected = (self.keys[name], namespace, self.uids[name], own and own["metadata"]["uid"])
        fields = (keys.CLUSTER, keys.NAMESPACE, keys.VC_UID, keys.UID)
        is_own = tuple(notes.get(each) for each in fields) == expected
        return target if is_own and isinstance(target, str) else None

    def _check_down(self, name: str, plane: Plane, reported: set[tuple[str, str]]) -> None:
        for _, namespace in plane.objects(NAMESPACES):
            if self._owned(name, plane, namespace) is None and ("Namespace", namespace) not in reported:
                self.problems.append(f"{name}: Namespace {namespace} is neither synced nor reported")
        for kind, resource in DOWN.items():
            found = self.super.objects(resource)
            for (namespace, own_name), value in plane.objects(resource).items():
                target = self._owned(name, plane, namespace)
                super_name = TENANT_ROOT_CA if (kind, own_name) == ("ConfigMap", ROOT_CA) else own_name
                twin = None if target is None else found.get((target, super_name))
                is_synced = (
                    twin is not None and annotations_of(twin).get(keys.UID) == value["metadata"]["uid"]
                )
                if (kind, f"{namespace}/{own_name}") in reported or _needs_no_twin(kind, value, plane):
                    continue
                if not is_synced:
                    self.problems.append(f"{name}: {kind} {namespace}/{own_name} is not synced nor reported")
                elif twin is not None and any(value.get(f) != twin.get(f) for f in ("data", "subsets")):
                    self.problems.append(f"{name}: {kind} {namespace}/{own_name} differs")

    def _check_up(self, name: str, plane: Plane, reported: set[tuple[str, str]]) -> None:
        mine = {
            target: namespace
            for _, namespace in plane.objects(NAMESPACES)
            if (target := self._owned(name, plane, namespace)) is not None
        }
        for (_, target), found in self.super.objects(NAMESPACES).items():
            notes = annotations_of(found)
            if notes.get(keys.VC_UID) == self.uids[name] and target not in mine:
                own = notes.get(keys.NAMESPACE, "")
                is_real = names.super_namespace(notes.get(keys.CLUSTER, ""), own) == target
                if is_real and ("Namespace", own) not in reported:
                    self.problems.append(f"{name}: super namespace {target} is left over")
        for kind, resource in DOWN.items():
            for (target, super_name), found in self.super.objects(resource).items():
                namespace = mine.get(target)
                if namespace is None or annotations_of(found).get(keys.CLUSTER) != self.keys[name]:
                    continue
                if keys.POD_TOKENS in (found["metadata"].get("labels") or {}):
                    continue
                own_name = ROOT_CA if (kind, super_name) == ("ConfigMap", TENANT_ROOT_CA) else super_name
                twin = plane.objects(resource).get((namespace, own_name))
                uid = annotations_of(found).get(keys.UID)
                is_known = (kind, f"{namespace}/{own_name}") in reported
                if (twin is None or twin["metadata"]["uid"] != uid) and not is_known:
                    self.problems.append(f"{name}: super {kind} {target}/{super_name} is left over")


def _is_ours(key: str) -> bool:
    return "tenancy.x-k8s.io/" in key or "vcnode.io/" in key


def _needs_no_twin(kind: str, value: Object, plane: Plane) -> bool:
    if kind == "Endpoints":
        where = (value["metadata"]["namespace"], value["metadata"]["name"])
        service = plane.objects(SERVICES).get(where)
        return service is not None and bool(service["spec"].get("selector"))
    return False


def _content(value: Object) -> Object:
    meta = {name: value["metadata"].get(name) for name in ("name", "uid", "labels", "annotations")}
    # Beside it the super cluster's own controllers write.
    return {"metadata": meta, "data": value.get("data")}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def sessions_of(world: World) -> Mapping[str, TenantSession]:
    """What the running syncer has of each tenant, by its cluster key."""
    assert world.service is not None
    return world.service._attachments.sessions  # noqa: SLF001 - tests look into it


def reports_of(plane: Plane, name: str) -> set[tuple[str, str]]:
    """Reason and message of each Event about objects of this name."""
    return {
        (each["reason"], each["message"])
        for each in plane.objects(EVENTS).values()
        if each["involvedObject"]["name"] == name
    }


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    await world.start()
    try:
        yield world
    finally:
        await world.close()


def furnish(plane: Plane, *objects: Object) -> None:
    """Create a tenant's Namespace `web`, and objects of it."""
    plane.cluster.create(NAMESPACES, {"metadata": {"name": "web"}})
    for each in objects:
        plane.cluster.create(DOWN[each["kind"]], each)


def set_policy(world: World, spec: Object) -> None:
    """Have the super cluster serve this spec as the default SyncPolicy."""
    policy: Object = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"namespace": "tenants", "name": "default"},
        "spec": spec,
    }
    world.super.storage.put(SYNC_POLICIES, policy)


@contextlib.asynccontextmanager
async def synced_tenant(
    *objects: Object, vn_agent: VnAgentConfig | None = None
) -> AsyncIterator[tuple[World, Plane]]:
    """A running world whose one tenant, `one` with the cluster key `red`, is furnished and synced."""
    world = World({"one": "red"}, vn_agent=vn_agent)
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, *objects)
        await asyncio.sleep(20)
        yield world, plane
