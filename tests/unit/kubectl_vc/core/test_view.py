# SPDX-License-Identifier: Apache-2.0
"""Fields of objects that others wrote."""

import pytest

from kubectl_vc.core.view import TenantView, at
from tests.unit.kubectl_vc.invocations import condition, virtual_cluster


@pytest.mark.parametrize(
    ("generation", "observed", "expected"), [(1, 1, True), (2, 1, False), (1, 2, True), (0, 0, False)]
)
def test_a_status_is_of_a_generation(generation: int, observed: int, expected: bool) -> None:
    view = TenantView(
        virtual_cluster(metadata={"generation": generation}, status={"observedGeneration": observed})
    )
    assert view.is_observed == expected


@pytest.mark.parametrize(
    "status", [None, [], "x", {"conditions": 7}, {"conditions": [None, "x", {"type": 1}]}]
)
def test_fields_of_other_types_count_as_absent(status: object) -> None:
    view = TenantView({"metadata": {"name": 7}, "status": status})
    assert (view.name, view.phase, view.conditions, view.is_observed) == ("", "", [], False)
    assert view.condition("Ready").line() == "Ready Unknown"


def test_conditions_without_a_type_are_the_syncers() -> None:
    made = virtual_cluster(status={"conditions": [{"reason": "x", "status": "True"}, condition("Ready")]})
    assert [each.line() for each in TenantView(made).conditions] == ["Ready True"]


def test_a_path_may_end_early() -> None:
    assert at({"a": {"b": [1]}}, "a", "b", "c") is None
