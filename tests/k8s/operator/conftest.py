# SPDX-License-Identifier: Apache-2.0
"""The ground of all tests here: the super cluster of `tests/k8s/conftest.py`, prepared once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.k8s.operator import ground as preparing
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.syncer.cluster import SyncedRing

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def ground(synced_ring: SyncedRing) -> Iterator[OperatorGround]:
    """The super cluster with volumes, DNS and images of control planes."""
    with preparing.prepared(synced_ring) as made:
        yield made


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines with what a test measured, printed at the end of the run."""
    return pytestconfig.stash.setdefault(FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured, also after success."""
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(f"operator ring: {line}")
