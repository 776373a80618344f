# SPDX-License-Identifier: Apache-2.0
"""Each test has namespaces of its own in both tenants; ring and syncer are of `tests/k8s/conftest.py`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.ring.tenants import RingTenant
from tests.k8s.syncer import daemon
from tests.k8s.syncer.aging import start_aging
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.shops import DirectShop, Shop


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the syncer's ring."""
    parser.getgroup("k8s").addoption(
        "--syncer-direct",
        action="store_true",
        help="run the tests of the syncer in the super cluster itself, without one: "
        "what fails there too is no fault of the syncer",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before there is a syncer, only the tests of the ring itself run. What has to get old is tested last."""
    here = Path(__file__).parent
    items.sort(key=lambda i: i.path.is_relative_to(here) and i.get_closest_marker("slow") is not None)
    if daemon.is_built() or config.getoption("--syncer-direct", False):
        return
    waiting = [i for i in items if i.path.is_relative_to(here) and i.path.name != "test_ring.py"]
    if waiting:
        config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if item not in waiting]


@pytest.fixture
def shops(synced_ring: SyncedRing, request: pytest.FixtureRequest) -> Iterator[tuple[Shop, Shop]]:
    """A namespace of the same name in each tenant, empty, and deleted afterwards."""
    name = f"shop-{secrets.token_hex(3)}"
    if request.config.getoption("--syncer-direct", False):
        one, other = (_direct(synced_ring, letter, f"{name}-{letter}") for letter in "ab")
    else:
        syncer: SyncerDaemon = request.getfixturevalue("syncer")
        if any(item.get_closest_marker("slow") for item in request.session.items):
            request.getfixturevalue("aging")
        one, other = (Shop(synced_ring, tenant, name, syncer) for tenant in synced_ring.tenants)
    for shop in (one, other):
        shop.create()
    try:
        yield one, other
    finally:
        for shop in (one, other):
            shop.delete()


@pytest.fixture(scope="session")
def aging(synced_ring: SyncedRing, syncer: SyncerDaemon) -> Shop:
    """The namespace of the pod that gets old."""
    return start_aging(Shop(synced_ring, synced_ring.tenants[1], "", syncer))


@pytest.fixture
def shop(shops: tuple[Shop, Shop]) -> Shop:
    """The first tenant's."""
    return shops[0]


def _direct(ring: SyncedRing, letter: str, namespace: str) -> Shop:
    """A namespace of the super cluster that passes for a tenant's."""
    one = ring.tenants[0]
    host = RingTenant(f"direct-{letter}", ring.super_cluster, ring.super_kubectl, one.client, one.client)
    return DirectShop(ring, host, namespace)
