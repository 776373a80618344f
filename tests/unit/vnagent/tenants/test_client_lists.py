# SPDX-License-Identifier: Apache-2.0
"""The clients in ConfigMaps `vn-agent-clients` are removed if that is plausible, or confirmed."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, SECRETS, VIRTUAL_CLUSTERS
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from devkit.pki import Authority
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from tests.unit.fake_clock import FakeClock
from tests.unit.vnagent.sources.publisher_setting import SourcesSetting
from vnagent.core.source_status import Retained
from vnagent.sources.super_tenants import SuperTenants
from vnagent.tenants.client_lists import ClientLists, retain_lists
from vnagent.tenants.reading import TenantsReading
from vnagent.tenants.virtualcluster import CLIENTS

LISTED = {"a": "0a" * 32, "b": "0b" * 32}
LISTS = {source: {spki: Role.APISERVER} for source, spki in LISTED.items()}
ALL, NONE = frozenset("ab"), frozenset[str]()
TENANTS = {key: Tenant(key, (), {"ff" * 32: Role.APISERVER}) for key in LISTED}
WITH_LIST = {key: Tenant(key, (), {"ff" * 32: Role.APISERVER} | LISTS[key]) for key in LISTED}


def reading(tenants: Mapping[str, Tenant | Bad], lists: str = "", deleted_lists: str = "") -> TenantsReading:
    return TenantsReading(
        tenants,
        client_lists={key: LISTS[key] for key in lists},
        deleted_lists=frozenset(deleted_lists),
    )


@pytest.mark.parametrize(
    ("now_in", "retained_tenants", "served", "retained"),
    [
        (reading(WITH_LIST, "ab"), NONE, "ab", NONE),
        (reading(TENANTS | {"a": WITH_LIST["a"]}, "a"), NONE, "a", NONE),  # one of two
        (reading(TENANTS), NONE, "ab", ALL),
        (reading(TENANTS, deleted_lists="a"), NONE, "b", frozenset("b")),
        (reading(TENANTS, deleted_lists="ab"), NONE, "", NONE),
        # Removed tenants lose their lists, and retained ones keep theirs.
        (reading({}), NONE, "", NONE),
        (reading({}), ALL, "ab", NONE),
        (reading({"a": TENANTS["a"]}), frozenset("b"), "b", NONE),
        # So does an unreadable one. Clients that were deleted meanwhile are gone once it is readable.
        (reading({"a": Bad("x"), "b": Bad("x")}), NONE, "ab", NONE),
        (reading({"a": Bad("x"), "b": Bad("x")}, deleted_lists="a"), NONE, "b", NONE),
    ],
)
def test_served_and_retained_lists(
    now_in: TenantsReading, retained_tenants: frozenset[str], served: str, retained: frozenset[str]
) -> None:
    lists, tenants = retain_lists(ClientLists(LISTS), now_in, retained_tenants, 9.0)
    assert (set(lists.served), lists.retained) == (set(served), retained)
    assert (lists.distrust is None) is not bool(retained)
    for key in retained:
        assert tenants[key] == WITH_LIST[key]
    # The same reading again changes nothing, and its confirmation is not repeated.
    again = replace(now_in, deleted_lists=NONE)
    assert retain_lists(lists, again, retained_tenants, 10.0) == (lists, tenants)


def test_an_empty_list_can_be_removed() -> None:
    before = ClientLists({"a": {}, "b": {}})
    assert retain_lists(before, reading(TENANTS), NONE, 9.0) == (ClientLists(), TENANTS)


class SuperCluster:
    """VirtualClusters `a` and `b`, each with one client in its ConfigMap."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._clock = directory, FakeClock()
        self.storage = Storage()
        self.transport = StorageTransport(self.storage)
        for key in LISTED:
            self._add(key)

    def _add(self, key: str) -> None:
        authority = Authority.create(key)
        for name, pem in (("root-ca", authority.cert_pem), ("apiserver-ca", authority.issue(key).cert_pem)):
            data = {"tls.crt": base64.b64encode(pem).decode()}
            self.storage.put(SECRETS, {"metadata": {"name": name, "namespace": key}, "data": data})
        self.put_list(key)
        status = {"phase": "Running", "clusterNamespace": key}
        self.storage.put(VIRTUAL_CLUSTERS, {"metadata": {"name": "vc", "namespace": key}, "status": status})

    def put_list(self, key: str) -> None:
        text = f"- {{spkiSHA256: {LISTED[key]}, role: apiserver}}\n"
        metadata = {"name": CLIENTS, "namespace": key}
        self.storage.put(CONFIG_MAPS, {"metadata": metadata, "data": {"clients.yaml": text}})

    def delete_lists(self, *keys: str) -> None:
        for key in keys:
            self.storage.delete(CONFIG_MAPS, key, CLIENTS)

    async def relist(self, *deleted: str) -> None:
        """Cut the watch, delete lists meanwhile, and make its position too old to be resumed."""
        self.transport.cut()
        await asyncio.sleep(0.005)
        self.delete_lists(*deleted)
        self.storage.compact()
        await asyncio.sleep(30)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SourcesSetting]:
        """Follow the super cluster by a source and feeds of their own, as after a start."""
        setting = SourcesSetting(self._directory, self._clock)
        setting.publisher.restore()
        clock = asyncio.get_running_loop().time
        source = SuperTenants(self.transport, setting.publisher.publish_tenants, clock=clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(source.run())
            await asyncio.sleep(1)
            yield setting
            task.cancel()
        await setting.saved.write_due()
        setting.poller.stop()


def served(setting: SourcesSetting) -> set[str]:
    """The tenants with a registered client of their list."""
    tenants = setting.state.registry.tenants
    return {key for key, spki in LISTED.items() if tenants[key].clients.get(spki) is Role.APISERVER}


@pytest.fixture
def cluster(tmp_path: Path) -> SuperCluster:
    return SuperCluster(tmp_path)


@pytest.mark.asyncio
async def test_a_relist_without_client_lists_removes_no_client(cluster: SuperCluster) -> None:
    """Of ConfigMaps alone: the VirtualClusters and their Secrets are there, so no tenant is missing."""
    async with cluster.running() as setting:
        assert served(setting) == {"a", "b"}
        await cluster.relist("a", "b")
        assert served(setting) == {"a", "b"}
        assert setting.publisher.retained() == Retained((), 0.0, ("a", "b"))
        assert (len(setting.publisher.retained_sources), len(setting.publisher.retained_lists)) == (0, 2)
        assert setting.state.metrics.distrusted_removals.value == 1
        setting.publisher.release_tenants()
        assert (served(setting), setting.publisher.retained()) == (set(), None)
        assert set(setting.state.registry.tenants) == {"a", "b"}


@pytest.mark.asyncio
async def test_a_deleted_client_list_removes_its_clients_at_once(cluster: SuperCluster) -> None:
    async with cluster.running() as setting:
        cluster.delete_lists("a", "b")
        await asyncio.sleep(1)
        assert (served(setting), setting.publisher.retained()) == (set(), None)


@pytest.mark.asyncio
async def test_a_relist_without_one_of_two_lists_removes_it(cluster: SuperCluster) -> None:
    async with cluster.running() as setting:
        await cluster.relist("a")
        assert (served(setting), setting.publisher.retained()) == ({"b"}, None)


@pytest.mark.asyncio
async def test_retained_client_lists_survive_a_restart(cluster: SuperCluster) -> None:
    async with cluster.running():
        pass
    cluster.delete_lists("a", "b")  # while the agent is down
    for _ in range(2):
        async with cluster.running() as setting:
            assert (served(setting), len(setting.publisher.retained_lists)) == ({"a", "b"}, 2)
    async with cluster.running() as setting:
        for key in LISTED:
            cluster.put_list(key)
        await asyncio.sleep(1)
        assert (served(setting), setting.publisher.retained()) == ({"a", "b"}, None)
