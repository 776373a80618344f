# SPDX-License-Identifier: Apache-2.0
"""A syncer that is killed at any request, again and again, under load."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, Resource
from daemonkit.tasks import Tasks
from devkit.kube.apiserver import Seen
from devkit.kube.cluster import ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Selection
from devkit.syncer.fake_node import FakeNode
from tenancy import keys
from tests import waiting
from tests.functional.syncer.clusters import ROOT, RecordingApiserver, SyncedClusters

pytestmark = [pytest.mark.functional, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 200
NAMESPACE = "web"
CONFIG_MAPS_OF_EACH = 30
PODS_OF_EACH = 4
# Fewer deletions than the guard takes for a wiped tenant, whatever a run misses.
MOST_DELETED = 4
# So few are made again under their names: what is missed of these is judged as deletions as well.
REMADE = frozenset(f"c-{number}" for number in range(10))
# A run that has nothing more to do is killed at rest.
REST_S = 0.3


class _Forks:
    """Syncers that are forked from one process."""

    def __init__(self, clusters: SyncedClusters) -> None:
        self._clusters = clusters
        self._parent: asyncio.subprocess.Process | None = None

    async def start(self) -> int:
        """Start the next one, after the end of the last one, which was killed. Returns its pid."""
        if self._parent is None:
            self._parent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.functional.syncer.forking_syncer"),
                *(str(self._clusters.write_config()), str(self._clusters.log)),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(b"start\n")
        ended, pid = (await asyncio.wait_for(self._parent.stdout.readline(), waiting.DEADLINE_S)).split()
        if int(ended) != -signal.SIGKILL:
            end = self._clusters.log.read_text()[-4000:]
            raise AssertionError(f"a run ended by itself, with code {int(ended)}:\n{end}")
        return int(pid)

    async def close(self) -> None:
        if self._parent is not None and self._parent.stdin is not None:
            self._parent.stdin.close()
            await asyncio.wait_for(self._parent.wait(), waiting.DEADLINE_S)


class _Records:
    """What was written, to find what happened twice: super objects by tenant UID, and nodes by pod."""

    def __init__(self, plane: RecordingApiserver, resource: Resource) -> None:
        self.made: dict[tuple[str, str], list[str]] = {}
        self.nodes: dict[str, set[str]] = {}
        self._storage, self._resource = plane.storage, resource
        self._revision = plane.storage.revision
        plane.storage.on_write.append(self._note)

    def _note(self, _: Resource | None) -> None:
        since, self._revision = self._revision, self._storage.revision
        for kind, value in self._storage.events(Selection(self._resource), since):
            meta = value["metadata"]
            owner = (meta.get("annotations") or {}).get(keys.UID, "")
            if kind == "ADDED" and owner:
                self.made.setdefault((owner, meta["name"]), []).append(meta["uid"])
            if node := (value.get("spec") or {}).get("nodeName"):
                self.nodes.setdefault(meta["uid"], set()).add(node)


def _pod(name: str) -> Object:
    return {
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


class _Load:
    """A tenant that changes its objects all the time. `expected` is what its ConfigMaps should be."""

    def __init__(self, plane: RecordingApiserver, draw: random.Random) -> None:
        self.plane = plane
        self.cluster = plane.server.cluster
        self.expected: dict[str, str] = {}
        self._draw = draw
        self._deleted = 0
        self._count = 0

    def begin(self) -> None:
        self.cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for number in range(CONFIG_MAPS_OF_EACH):
            self._make(f"c-{number}")
        for number in range(PODS_OF_EACH):
            self.cluster.create(PODS, _pod(f"p-{number}"))

    def _make(self, name: str) -> None:
        self._count += 1
        self.expected[name] = str(self._count)
        meta = {"namespace": NAMESPACE, "name": name}
        self.cluster.create(CONFIG_MAPS, {"metadata": meta, "data": {"n": self.expected[name]}})

    def change(self) -> None:
        """Change, recreate or delete a few objects, and replace a pod."""
        for name in self._draw.sample(sorted(self.expected), 3):
            found = self.plane.storage.get(CONFIG_MAPS, NAMESPACE, name)
            self._count += 1
            self.expected[name] = found["data"]["n"] = str(self._count)
            self.cluster.update(CONFIG_MAPS, found)
        name = self._draw.choice(sorted(self.expected.keys() & REMADE))
        self.cluster.delete(CONFIG_MAPS, NAMESPACE, name)
        del self.expected[name]
        if self._deleted < MOST_DELETED and self._draw.random() < 0.1:
            self._deleted += 1
        else:
            self._make(name)
        name = f"p-{self._draw.randrange(PODS_OF_EACH)}"
        if not self.plane.storage.has(PODS, NAMESPACE, name):
            self.cluster.create(PODS, _pod(name))
        elif self._draw.random() < 0.5:
            self.cluster.delete(PODS, NAMESPACE, name)

    def differences(self, super_cluster: RecordingApiserver) -> list[str]:
        """What is not as it should be at rest, on either side."""
        target = f"{self.plane.key}-{NAMESPACE}"
        own = {key[1]: each for key, each in self.plane.objects(CONFIG_MAPS, NAMESPACE).items()}
        found = {key[1]: each for key, each in super_cluster.objects(CONFIG_MAPS, target).items()}
        of_clusters = {"kube-root-ca.crt", "tenant-kube-root-ca.crt"}
        problems = []
        for side, values in (("tenant", own), ("super", found)):
            data = {name: each["data"]["n"] for name, each in values.items() if name not in of_clusters}
            if data != self.expected:
                problems.append(f"{side}: {sorted(data.items() ^ self.expected.items())}")
        pods = self.plane.objects(PODS, NAMESPACE)
        twins = super_cluster.objects(PODS, target)
        if {each["metadata"]["uid"] for each in pods.values()} != {_owner(each) for each in twins.values()}:
            problems.append(f"pods {sorted(pods)} and {sorted(twins)}")
        for key, each in pods.items():
            twin = twins.get((target, key[1]), {"spec": {}})
            if each.get("status", {}).get("phase") != "Running" or "deletionTimestamp" in each["metadata"]:
                problems.append(f"pod {key} is not running: {each['metadata']} {each.get('status')}")
            if each["spec"].get("nodeName") != twin["spec"].get("nodeName"):
                problems.append(f"pod {key} is on two nodes")
        return problems


def _owner(value: Object) -> str:
    return str((value["metadata"].get("annotations") or {}).get(keys.UID))


def _outsiders(clusters: SyncedClusters) -> list[tuple[Resource, Object]]:
    """Objects of the super cluster's own, some in names where a tenant's would go."""
    made = []
    cluster = clusters.super.server.cluster
    for namespace in ("kube-system", "foreign", "acme-web"):
        if not clusters.super.storage.has(NAMESPACES, "", namespace):
            cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
        meta: Any = {"namespace": namespace, "name": "c-0"}
        made.append((CONFIG_MAPS, cluster.create(CONFIG_MAPS, {"metadata": meta, "data": {"of": "x"}})))
    return made


@pytest.mark.asyncio
async def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - a failure shows it
    draw = random.Random(seed)  # noqa: S311 - no secret
    settings = ClusterSettings()
    tenants = ("acme-web", "blue", "green")
    async with SyncedClusters(tmp_path, tenants, {"patrol": {"intervalSeconds": 2}}, settings) as clusters:
        # `acme` is no tenant: `acme-web` is a foreign namespace, and the root of tenant `acme-web`.
        foreign = _outsiders(clusters)
        made, bound = (
            _Records(clusters.super, PODS),
            [_Records(each, PODS) for each in clusters.tenants.values()],
        )
        loads = [_Load(each, draw) for each in clusters.tenants.values()]
        tasks, forks = Tasks("world"), _Forks(clusters)
        node = FakeNode(InProcessClient(clusters.super.server.cluster), ("node-0", "node-1"))
        await node.register()
        tasks.spawn(node.run(), "node")
        for load in loads:
            load.begin()
        try:
            for _ in range(KILLS):
                await _run_and_kill(clusters, forks, loads, draw)
            clusters.super.on_request = lambda _: True
            await forks.start()
            await clusters.until_ready()
            await clusters.until(
                lambda: not [problem for each in loads for problem in each.differences(clusters.super)], 60
            )
        finally:
            await forks.close()
            await tasks.close(1.0)
        assert {key: uids for key, uids in made.made.items() if len(uids) > 1} == {}
        assert [nodes for each in bound for nodes in each.nodes.values() if len(nodes) > 1] == []
        for resource, value in foreign:
            meta = value["metadata"]
            assert clusters.super.get(resource, meta["namespace"], meta["name"]) == value


async def _run_and_kill(
    clusters: SyncedClusters, forks: _Forks, loads: list[_Load], draw: random.Random
) -> None:
    """One run: it is killed at a request, which is carried out or not, or when it rests."""
    left = draw.choice([draw.randrange(1, 20), draw.randrange(1, 80)])
    is_carried_out = draw.random() < 0.5
    is_killed = asyncio.Event()
    last_s = asyncio.get_running_loop().time()
    pid = await forks.start()

    def note(_: Seen) -> bool:
        nonlocal left, last_s
        last_s = asyncio.get_running_loop().time()
        left -= 1
        if left == 0:
            os.kill(pid, signal.SIGKILL)
            is_killed.set()
            return is_carried_out
        # What a connection still brings of a run that was killed.
        return left > 0

    clusters.super.on_request = note
    for load in loads:
        load.change()
    while not is_killed.is_set():
        await asyncio.sleep(0.01)  # pace: its requests come meanwhile
        if asyncio.get_running_loop().time() - last_s > REST_S:
            left = -1
            os.kill(pid, signal.SIGKILL)
            break
