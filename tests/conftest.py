# SPDX-License-Identifier: Apache-2.0
"""Every test has the marker of its ring, and every ring prints its skipped tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.rings.plugin import pytest_addoption, pytest_configure

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

# The time of an example depends on the machine's load, not on the code.
settings.register_profile("vcnode", deadline=None)
settings.load_profile("vcnode")

_RINGS = ("functional", "lab", "lab_vm", "k8s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        ring = item.path.relative_to(here).parts[0]
        if ring in _RINGS:
            item.add_marker(ring)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a short name: pytest's own leaves too little of a unix socket's 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vct") as made:
        yield Path(made)
