# SPDX-License-Identifier: Apache-2.0
import pytest

from devkit.kata.guest_tables import NamespaceTables
from tests.lab.namespaces import Lab, LabNamespace


@pytest.fixture
def guest(lab: Lab) -> LabNamespace:
    """The guest's network."""
    return lab.namespace("guest")


@pytest.fixture(params=["legacy", "nft"])
def variant(request: pytest.FixtureRequest) -> str:
    """The iptables of the guest's image."""
    return str(request.param)


@pytest.fixture
def tables(guest: LabNamespace, variant: str) -> NamespaceTables:
    """The guest's real iptables."""
    return NamespaceTables(guest.path, variant, guest.environment)
