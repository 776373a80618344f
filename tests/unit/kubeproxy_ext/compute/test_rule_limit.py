# SPDX-License-Identifier: Apache-2.0
"""Which Services lose their rules beyond the limit."""

from kubeproxy_ext.compute.rule_limit import services_beyond_limit


def test_nothing_is_left_out_within_the_limit() -> None:
    assert services_beyond_limit({}, 10) == frozenset()
    assert services_beyond_limit({"a": 4, "b": 6}, 10) == frozenset()


def test_largest_are_left_out_first_then_by_name() -> None:
    assert services_beyond_limit({"a": 4, "b": 7, "c": 1}, 10) == {"b"}
    assert services_beyond_limit({"a": 4, "b": 4, "c": 4}, 10) == {"a"}
    assert services_beyond_limit({"a": 11}, 10) == {"a"}
