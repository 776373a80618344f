# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import CONFIG_MAPS, SECRETS, VIRTUAL_CLUSTERS, Status
from daemonkit.testing.kube_storage import Storage
from daemonkit.testing.kube_transport import StorageTransport
from daemonkit.testing.pki import Authority, Leaf
from tenancy import keys
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from vnagent.sources.super_tenants import SuperTenants

pytestmark = pytest.mark.asyncio

OVERLAP_S = 600.0


class World:
    """A super cluster with VirtualClusters, and what the source publishes of them."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.transport = StorageTransport(self.storage)
        self.published: list[Mapping[str, Tenant | Bad]] = []
        self.source = SuperTenants(
            self.transport,
            self.published.append,
            overlap_s=OVERLAP_S,
            clock=asyncio.get_running_loop().time,
        )

    @property
    def now(self) -> Mapping[str, Tenant | Bad]:
        return self.published[-1]

    def put_cluster(self, key: str, phase: str = "Running", name: str = "vc") -> None:
        status = {"phase": phase, "clusterNamespace": key}
        metadata = {"name": name, "namespace": key}
        self.storage.put(VIRTUAL_CLUSTERS, {"metadata": metadata, "spec": {}, "status": status})

    def put_secret(self, key: str, name: str, pem: bytes, annotations: dict[str, str] | None = None) -> None:
        data = {"tls.crt": base64.b64encode(pem).decode(), "tls.key": "c2VjcmV0"}
        metadata = {"name": name, "namespace": key, "annotations": annotations or {}}
        self.storage.put(SECRETS, {"metadata": metadata, "data": data})

    def add(self, key: str) -> tuple[Authority, Leaf]:
        authority = Authority.create(key)
        leaf = authority.issue(key)
        self.put_secret(key, "root-ca", authority.cert_pem)
        self.put_secret(key, "apiserver-ca", leaf.cert_pem)
        self.put_cluster(key)
        return authority, leaf

    def put_clients(self, key: str, text: str) -> None:
        metadata = {"name": "vn-agent-clients", "namespace": key}
        self.storage.put(CONFIG_MAPS, {"metadata": metadata, "data": {"clients.yaml": text}})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.source.run())
            await asyncio.sleep(1)
            yield
            task.cancel()


def tenant(key: str, authority: Authority, *leaves: Leaf, **extra: Role) -> Tenant:
    clients = {leaf.spki_sha256: Role.APISERVER for leaf in leaves} | extra
    return Tenant(key, (authority.der,), clients)


async def test_an_empty_super_cluster_is_published_once() -> None:
    world = World()
    assert world.source.age_s() is None
    async with world.running():
        assert world.published == [{}]
        assert world.source.age_s() is not None


async def test_tenants_come_change_and_go() -> None:
    world = World()
    authority, leaf = world.add("a")
    async with world.running():
        assert world.now == {"a/vc": tenant("a", authority, leaf)}
        other, other_leaf = world.add("b")
        await asyncio.sleep(1)
        assert world.now == {
            "a/vc": tenant("a", authority, leaf),
            "b/vc": tenant("b", other, other_leaf),
        }
        world.put_clients("b", f"- {{spkiSHA256: {'ab' * 32}, role: metrics}}\n")
        await asyncio.sleep(1)
        assert world.now["b/vc"] == tenant("b", other, other_leaf, **{"ab" * 32: Role.METRICS})
        world.storage.delete(CONFIG_MAPS, "b", "vn-agent-clients")
        world.storage.delete(VIRTUAL_CLUSTERS, "a", "vc")
        await asyncio.sleep(1)
        assert world.now == {"b/vc": tenant("b", other, other_leaf)}
        world.put_cluster("b", "Error")
        await asyncio.sleep(1)
        assert world.now == {}


async def test_a_bad_tenant_does_not_disturb_the_others() -> None:
    world = World()
    authority, leaf = world.add("a")
    world.add("b")
    async with world.running():
        world.storage.delete(SECRETS, "b", "root-ca")
        world.storage.put(
            VIRTUAL_CLUSTERS, {"metadata": {"name": "vc", "namespace": "c"}, "spec": {"clusterDomain": 7}}
        )
        await asyncio.sleep(1)
        assert world.now == {
            "a/vc": tenant("a", authority, leaf),
            "b/vc": Bad("Secret b/root-ca does not exist"),
            "c/vc": Bad(
                "VirtualCluster does not decode: Expected `str`, got `int` - at `$.spec.clusterDomain`"
            ),
        }


async def test_secrets_that_a_tenant_made_do_not_count() -> None:
    """Tenant `a` makes namespace `b`: its super namespace is the key of tenant `a-b`."""
    world = World()
    authority, leaf = world.add("a-b")
    mallory = Authority.create("mallory")
    async with world.running():
        brought_down = {keys.CLUSTER: "a", keys.NAMESPACE: "b"}
        world.put_secret("a-b", "root-ca", mallory.cert_pem, brought_down)
        await asyncio.sleep(1)
        assert world.now == {"a-b/vc": Bad("Secret a-b/root-ca does not exist")}
        world.put_secret("a-b", "root-ca", authority.cert_pem)
        await asyncio.sleep(1)
        assert world.now == {"a-b/vc": tenant("a-b", authority, leaf)}


async def test_a_rotation_overlaps_and_ends_by_itself() -> None:
    world = World()
    authority, old = world.add("a")
    async with world.running():
        new = authority.issue("a")
        world.put_secret("a", "apiserver-ca", new.cert_pem)
        await asyncio.sleep(1)
        assert world.now == {"a/vc": tenant("a", authority, new, old)}
        await asyncio.sleep(OVERLAP_S - 3)
        assert world.now == {"a/vc": tenant("a", authority, new, old)}
        published = len(world.published)
        await asyncio.sleep(5)
        assert world.now == {"a/vc": tenant("a", authority, new)}
        assert len(world.published) == published + 1


async def test_a_rotation_that_turns_bad_does_not_spin() -> None:
    world = World()
    authority, _ = world.add("a")
    async with world.running():
        new = authority.issue("a")
        world.put_secret("a", "apiserver-ca", new.cert_pem)
        await asyncio.sleep(1)
        world.storage.delete(SECRETS, "a", "root-ca")
        await asyncio.sleep(1)
        published = len(world.published)
        await asyncio.sleep(2 * OVERLAP_S)
        assert len(world.published) == published
        world.put_secret("a", "root-ca", authority.cert_pem)
        await asyncio.sleep(1)
        assert world.now == {"a/vc": tenant("a", authority, new)}


async def test_nothing_is_published_before_all_lists_are_in() -> None:
    world = World()
    world.add("a")
    forbidden = ApiError(Status(code=403, reason="Forbidden"))
    world.transport.failures = [forbidden]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.source.run())
        await asyncio.sleep(0.2)
        assert world.published == []
        assert world.source.age_s() is None
        await asyncio.sleep(1)
        assert list(world.now) == ["a/vc"]
        task.cancel()


async def test_what_was_published_ages_while_the_super_cluster_is_away() -> None:
    world = World()
    async with world.running():
        world.transport.failures = [UnreachableError("connect")] * 1000
        world.transport.cut()
        await asyncio.sleep(600)
        age_s = world.source.age_s()
        assert age_s is not None
        assert age_s > 599
        world.transport.heal()
        await asyncio.sleep(100)
        age_s = world.source.age_s()
        assert age_s is not None
        assert age_s < 100


async def test_what_is_asked_for() -> None:
    world = World()
    async with world.running():
        lists = [query for query in world.transport.queries if "watch" not in query]
        assert sorted(query.get("fieldSelector", "") for query in lists) == [
            "",
            "metadata.name=apiserver-ca",
            "metadata.name=root-ca",
            "metadata.name=vn-agent-clients",
        ]
