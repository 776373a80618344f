# SPDX-License-Identifier: Apache-2.0
"""The ground of all tests here: the super cluster of `tests/k8s/conftest.py`, prepared once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.operator import daemon, releases, running_pods, tenants
from tests.k8s.operator import ground as preparing
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon

FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before there is an operator, only the tests of the ground run."""
    here = Path(__file__).parent
    if daemon.is_built():
        return
    waiting = [i for i in items if i.path.is_relative_to(here) and i.path.name != "test_ground.py"]
    if waiting:
        config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if item not in waiting]


@pytest.fixture(scope="session")
def ground(synced_ring: SyncedRing) -> Iterator[OperatorGround]:
    """The super cluster with volumes, DNS and images of control planes."""
    with preparing.prepared(synced_ring) as made:
        yield made


@pytest.fixture(scope="session")
def operator(ground: OperatorGround) -> Iterator[OperatorDaemon]:
    """The operator, ready."""
    made = OperatorDaemon(ground)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def residents(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon
) -> tuple[OperatedTenant, OperatedTenant]:
    """Two tenants with pods that stay for all files. The second one has two API servers."""
    classes = {
        name: {"apiServer": {**tenants.SMALL_API_SERVER, "replicas": replicas}, "etcd": tenants.TINY_STORE}
        for name, replicas in (("single", 1), ("twin", 2))
    }
    version = tenants.cluster_version("resident", releases.CURRENT, defaultClass="single", classes=classes)
    tenants.apply(ground, version)
    made = (
        tenants.create(ground, operator, "red", clusterVersionName="resident"),
        tenants.create(ground, operator, "yellow", **{"clusterVersionName": "resident", "class": "twin"}),
    )
    for each in made:
        each.wait_condition(tenants.READY)
        running_pods.start(each)
    return made


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines with what a test measured, printed at the end of the run."""
    return pytestconfig.stash.setdefault(FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured, also after success."""
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(f"operator ring: {line}")
