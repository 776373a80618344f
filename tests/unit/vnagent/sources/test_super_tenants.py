# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from daemonkit.kube.client import MAX_RESPONSE_BYTES, ApiError, UnreachableError
from daemonkit.kube.resources import CONFIG_MAPS, SECRETS, VIRTUAL_CLUSTERS, Status
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from devkit.pki import Authority, Leaf
from tenancy import keys
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from vnagent.sources.super_tenants import SuperTenants
from vnagent.tenants.reading import TenantsReading
from vnagent.tenants.rotation import Rotation
from vnagent.tenants.virtualcluster import key_of_source

pytestmark = pytest.mark.asyncio

OVERLAP_S = 600.0


class SuperTenantsSetting:
    """A super cluster with VirtualClusters, and the tenants that the source publishes."""

    def __init__(
        self, storage: Storage | None = None, rotations: Mapping[str, Rotation] | None = None
    ) -> None:
        self.storage = storage or Storage()
        self.transport = StorageTransport(self.storage)
        self.readings: list[TenantsReading] = []
        self.source = SuperTenants(
            self.transport,
            self.readings.append,
            overlap_s=OVERLAP_S,
            rotations=rotations,
            clock=asyncio.get_running_loop().time,
        )

    @property
    def published(self) -> list[Mapping[str, Tenant | Bad]]:
        return [named(reading.tenants) for reading in self.readings]

    @property
    def now(self) -> Mapping[str, Tenant | Bad]:
        """The last reading, by namespace and name alone."""
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


def named(tenants: Mapping[str, Tenant | Bad]) -> Mapping[str, Tenant | Bad]:
    return {"/".join(key_of_source(source)): each for source, each in tenants.items()}


def tenant(key: str, authority: Authority, *leaves: Leaf, **extra: Role) -> Tenant:
    clients = {leaf.spki_sha256: Role.APISERVER for leaf in leaves} | extra
    return Tenant(key, (authority.der,), clients)


async def test_an_empty_super_cluster_is_published_once() -> None:
    setting = SuperTenantsSetting()
    assert setting.source.age_s() is None
    async with setting.running():
        assert setting.published == [{}]
        assert setting.source.age_s() is not None


async def test_tenants_are_added_changed_and_removed() -> None:
    setting = SuperTenantsSetting()
    authority, leaf = setting.add("a")
    async with setting.running():
        assert setting.now == {"a/vc": tenant("a", authority, leaf)}
        other, other_leaf = setting.add("b")
        await asyncio.sleep(1)
        assert setting.now == {
            "a/vc": tenant("a", authority, leaf),
            "b/vc": tenant("b", other, other_leaf),
        }
        setting.put_clients("b", f"- {{spkiSHA256: {'ab' * 32}, role: metrics}}\n")
        await asyncio.sleep(1)
        assert setting.now["b/vc"] == tenant("b", other, other_leaf, **{"ab" * 32: Role.METRICS})
        setting.storage.delete(CONFIG_MAPS, "b", "vn-agent-clients")
        setting.storage.delete(VIRTUAL_CLUSTERS, "a", "vc")
        await asyncio.sleep(1)
        assert setting.now == {"b/vc": tenant("b", other, other_leaf)}
        setting.put_cluster("b", "Error")
        await asyncio.sleep(1)
        assert setting.now == {}


async def test_an_invalid_tenant_does_not_affect_others() -> None:
    setting = SuperTenantsSetting()
    authority, leaf = setting.add("a")
    setting.add("b")
    async with setting.running():
        setting.storage.delete(SECRETS, "b", "root-ca")
        setting.storage.put(
            VIRTUAL_CLUSTERS, {"metadata": {"name": "vc", "namespace": "c"}, "spec": {"clusterDomain": 7}}
        )
        await asyncio.sleep(1)
        assert setting.now == {
            "a/vc": tenant("a", authority, leaf),
            "b/vc": Bad("Secret b/root-ca does not exist"),
            "c/vc": Bad(
                "VirtualCluster does not decode: Expected `str`, got `int` - at `$.spec.clusterDomain`"
            ),
        }


async def test_secrets_from_the_syncer_are_ignored() -> None:
    """Tenant `a` makes namespace `b`: its super namespace is the key of tenant `a-b`."""
    setting = SuperTenantsSetting()
    authority, leaf = setting.add("a-b")
    mallory = Authority.create("mallory")
    async with setting.running():
        brought_down = {keys.CLUSTER: "a", keys.NAMESPACE: "b"}
        setting.put_secret("a-b", "root-ca", mallory.cert_pem, brought_down)
        await asyncio.sleep(1)
        assert setting.now == {"a-b/vc": Bad("Secret a-b/root-ca does not exist")}
        setting.put_secret("a-b", "root-ca", authority.cert_pem)
        await asyncio.sleep(1)
        assert setting.now == {"a-b/vc": tenant("a-b", authority, leaf)}


async def test_a_rotation_overlaps_and_ends_by_itself() -> None:
    setting = SuperTenantsSetting()
    authority, old = setting.add("a")
    async with setting.running():
        new = authority.issue("a")
        setting.put_secret("a", "apiserver-ca", new.cert_pem)
        await asyncio.sleep(1)
        assert setting.now == {"a/vc": tenant("a", authority, new, old)}
        await asyncio.sleep(OVERLAP_S - 3)
        assert setting.now == {"a/vc": tenant("a", authority, new, old)}
        published = len(setting.published)
        await asyncio.sleep(5)
        assert setting.now == {"a/vc": tenant("a", authority, new)}
        assert len(setting.published) == published + 1


async def test_an_invalid_tenant_in_rotation_does_not_spin() -> None:
    setting = SuperTenantsSetting()
    authority, _ = setting.add("a")
    async with setting.running():
        new = authority.issue("a")
        setting.put_secret("a", "apiserver-ca", new.cert_pem)
        await asyncio.sleep(1)
        setting.storage.delete(SECRETS, "a", "root-ca")
        await asyncio.sleep(1)
        published = len(setting.published)
        await asyncio.sleep(2 * OVERLAP_S)
        assert len(setting.published) == published
        setting.put_secret("a", "root-ca", authority.cert_pem)
        await asyncio.sleep(1)
        assert setting.now == {"a/vc": tenant("a", authority, new)}


async def test_nothing_is_published_before_all_lists_synced() -> None:
    setting = SuperTenantsSetting()
    setting.add("a")
    forbidden = ApiError(Status(code=403, reason="Forbidden"))
    setting.transport.failures = [forbidden]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(setting.source.run())
        await asyncio.sleep(0.2)
        assert setting.published == []
        assert setting.source.age_s() is None
        await asyncio.sleep(1)
        assert list(setting.now) == ["a/vc"]
        task.cancel()


async def test_the_age_grows_while_the_super_cluster_is_away() -> None:
    setting = SuperTenantsSetting()
    async with setting.running():
        setting.transport.failures = [UnreachableError("connect")] * 1000
        setting.transport.cut()
        await asyncio.sleep(600)
        age_s = setting.source.age_s()
        assert age_s is not None
        assert age_s > 599
        setting.transport.heal()
        await asyncio.sleep(100)
        age_s = setting.source.age_s()
        assert age_s is not None
        assert age_s < 100


async def test_watches_select_by_name() -> None:
    setting = SuperTenantsSetting()
    async with setting.running():
        lists = [query for query in setting.transport.queries if "watch" not in query]
        assert sorted(query.get("fieldSelector", "") for query in lists) == [
            "",
            "metadata.name=apiserver-ca",
            "metadata.name=root-ca",
            "metadata.name=vn-agent-clients",
        ]


def uid_of(setting: SuperTenantsSetting, key: str) -> str:
    (source,) = (each for each in setting.readings[-1].tenants if each.startswith(f"{key}/"))
    return source


async def test_an_event_confirms_a_deletion_and_a_relist_does_not() -> None:
    setting = SuperTenantsSetting()
    for key in ("a", "b"):
        setting.add(key)
    async with setting.running():
        first = uid_of(setting, "a")
        setting.storage.delete(VIRTUAL_CLUSTERS, "a", "vc")
        await asyncio.sleep(1)
        assert (list(setting.now), setting.readings[-1].deleted) == (["b/vc"], frozenset({first}))
        # The watch is cut and its position compacted: what follows is a list.
        setting.transport.cut()
        await asyncio.sleep(0.005)
        setting.storage.delete(VIRTUAL_CLUSTERS, "b", "vc")
        setting.storage.compact()
        await asyncio.sleep(30)
        assert (dict(setting.now), setting.readings[-1].deleted) == ({}, frozenset())


async def test_a_phase_that_is_not_served_confirms_a_removal() -> None:
    setting = SuperTenantsSetting()
    setting.add("a")
    async with setting.running():
        source = uid_of(setting, "a")
        setting.put_cluster("a", "Error")
        await asyncio.sleep(1)
        assert (dict(setting.now), setting.readings[-1].deleted) == ({}, frozenset({source}))


async def test_another_uid_is_another_tenant() -> None:
    """Of the same name and key: neither the old one's last good state nor its rotation is the new one's."""
    setting = SuperTenantsSetting()
    authority, _ = setting.add("a")
    async with setting.running():
        first = uid_of(setting, "a")
        setting.put_secret("a", "apiserver-ca", authority.issue("a").cert_pem)
        await asyncio.sleep(1)
        setting.storage.delete(VIRTUAL_CLUSTERS, "a", "vc")
        new = authority.issue("a")
        setting.put_secret("a", "apiserver-ca", new.cert_pem)
        setting.put_cluster("a")
        await asyncio.sleep(1)
        second = uid_of(setting, "a")
        assert second != first
        assert setting.now == {"a/vc": tenant("a", authority, new)}
        assert first in {source for each in setting.readings for source in each.deleted}
        # Also if the new one cannot be read: the old one is not retained instead.
        setting.storage.delete(VIRTUAL_CLUSTERS, "a", "vc")
        setting.storage.put(
            VIRTUAL_CLUSTERS, {"metadata": {"name": "vc", "namespace": "a"}, "spec": {"clusterDomain": 7}}
        )
        await asyncio.sleep(1)
        assert second not in setting.readings[-1].tenants
        assert second in {source for each in setting.readings for source in each.deleted}


async def test_an_undecodable_object_keeps_its_source_name() -> None:
    setting = SuperTenantsSetting()
    setting.add("a")
    async with setting.running():
        source = uid_of(setting, "a")
        setting.storage.put(
            VIRTUAL_CLUSTERS, {"metadata": {"name": "vc", "namespace": "a"}, "spec": {"clusterDomain": 7}}
        )
        await asyncio.sleep(1)
        reading = setting.readings[-1]
        assert isinstance(reading.tenants[source], Bad)
        assert reading.deleted == frozenset()
        setting.storage.delete(VIRTUAL_CLUSTERS, "a", "vc")
        await asyncio.sleep(1)
        assert setting.readings[-1].deleted == {source}


async def test_a_rotation_continues_after_a_restart() -> None:
    setting = SuperTenantsSetting()
    authority, old = setting.add("a")
    new = authority.issue("a")
    async with setting.running():
        setting.put_secret("a", "apiserver-ca", new.cert_pem)
        await asyncio.sleep(100)
        rotations = setting.readings[-1].rotations
    again = SuperTenantsSetting(setting.storage, rotations)
    async with again.running():
        assert again.now == {"a/vc": tenant("a", authority, new, old)}
        await asyncio.sleep(OVERLAP_S - 110)
        assert again.now == {"a/vc": tenant("a", authority, new, old)}
        await asyncio.sleep(20)
        assert again.now == {"a/vc": tenant("a", authority, new)}


class WithoutVirtualClusters(StorageTransport):
    """A super cluster in which that resource is not defined."""

    is_missing = True

    async def request(
        self, method: str, path: str, params: Mapping[str, str], *, limit_bytes: int = MAX_RESPONSE_BYTES
    ) -> bytes:
        if self.is_missing and "virtualclusters" in path:
            # As kube-apiserver 1.34, which responds with a text instead of a Status.
            raise ApiError(Status(code=404, message="the error response is not a Status"))
        return await super().request(method, path, params, limit_bytes=limit_bytes)


async def test_a_missing_crd_is_reported_with_the_remedy() -> None:
    setting = SuperTenantsSetting()
    transport = WithoutVirtualClusters(setting.storage)
    setting.source = SuperTenants(transport, setting.readings.append, clock=asyncio.get_running_loop().time)
    async with setting.running():
        await asyncio.sleep(10)
        assert setting.readings == []
        failure = setting.source.failure()
        assert failure is not None
        assert failure.for_s > 5
        assert (failure.fault.text, failure.fault.remedy) == (
            "super cluster: virtualclusters.tenancy.x-k8s.io: 404, VirtualClusters are not installed",
            "apply packaging/crds/virtualclusters.yaml, or give tenants by tenants.directory",
        )
        transport.is_missing = False
        await asyncio.sleep(60)
        assert (setting.published, setting.source.failure()) == ([{}], None)
