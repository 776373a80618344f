# SPDX-License-Identifier: Apache-2.0
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.kata.guest_tables import NamespaceTables
from tests.lab.namespaces import Lab, LabNamespace


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: pytest's own leaves too little of a socket's 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vck") as made:
        yield Path(made)


@pytest.fixture
def guest(lab: Lab) -> LabNamespace:
    """The guest's network."""
    return lab.namespace("guest")


@pytest.fixture(params=["legacy", "nft"])
def variant(request: pytest.FixtureRequest) -> str:
    """Which iptables the guest's image has."""
    return str(request.param)


@pytest.fixture
def tables(guest: LabNamespace, variant: str) -> NamespaceTables:
    """The guest's real iptables."""
    return NamespaceTables(guest.path, variant, guest.environment)
