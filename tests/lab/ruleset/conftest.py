# SPDX-License-Identifier: Apache-2.0
"""A guest's packet filter, of each kind and family."""

import pytest

from ruleset.model import Family
from tests.lab.namespaces import Lab
from tests.lab.ruleset.filters import ALL, LabFilter


@pytest.fixture(params=ALL, ids=[f"{kind}-{family.value}" for kind, family in ALL])
def filter_(request: pytest.FixtureRequest, lab: Lab) -> LabFilter:
    """A fresh guest."""
    kind: str
    family: Family
    kind, family = request.param
    return LabFilter(lab.namespace("guest"), kind, family)
