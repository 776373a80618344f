# SPDX-License-Identifier: Apache-2.0
"""Which Services lose their rules beyond the limit."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.compute.parse import Addresses, EndpointInfo, PortInfo, ServiceInfo, SliceInfo
from kubeproxy_ext.compute.rule_limit import (
    MAX_RULES,
    MAX_SETS,
    RULES,
    RuleCounts,
    rule_counts,
    services_beyond_limit,
    services_beyond_limits,
)
from kubeproxy_ext.compute.service_rules import GuestLocation, compile_service
from ruleset.model import Family, GuestRules, Protocol
from ruleset.render import iptables, nft


def test_nothing_is_left_out_within_the_limit() -> None:
    assert services_beyond_limit({}, 10) == frozenset()
    assert services_beyond_limit({"a": 4, "b": 6}, 10) == frozenset()


def test_largest_are_left_out_first_then_by_name() -> None:
    assert services_beyond_limit({"a": 4, "b": 7, "c": 1}, 10) == {"b"}
    assert services_beyond_limit({"a": 4, "b": 4, "c": 4}, 10) == {"a"}
    assert services_beyond_limit({"a": 11}, 10) == {"a"}


_PORTS = tuple(PortInfo(name, Protocol.TCP, number) for number, name in enumerate("abc", 80))


def _endpoint(number: int, node: str | None, *, is_ready: bool) -> EndpointInfo:
    return EndpointInfo(
        f"10.0.0.{number}", node, is_ready, is_serving=True, is_terminating=False, zones=(), nodes=()
    )


@given(
    st.lists(st.sampled_from(_PORTS), unique=True, max_size=3),
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(_PORTS), unique=True, max_size=3),
            st.lists(
                st.builds(
                    _endpoint, st.integers(1, 6), st.sampled_from([None, "here"]), is_ready=st.booleans()
                ),
                max_size=4,
            ),
        ),
        max_size=3,
    ),
    st.sampled_from([None, 60]),
    st.booleans(),
    st.booleans(),
)
def test_a_cost_covers_what_the_packet_filters_get(
    ports: list[PortInfo],
    slices: list[tuple[list[PortInfo], list[EndpointInfo]]],
    affinity_s: int | None,
    is_internal_local: bool,
    has_outer: bool,
) -> None:
    addresses = Addresses("172.30.0.1", ("172.30.0.2",), ("1.2.3.4",) if has_outer else (), (), None)
    service = ServiceInfo(
        "a", "s", None, "", tuple(ports), addresses, None, is_internal_local, affinity_s, ()
    )
    made = [
        SliceInfo("a", f"s-{number}", "s", Family.IPV4, tuple(named), tuple(endpoints), ())
        for number, (named, endpoints) in enumerate(slices)
    ]
    counts = rule_counts(
        len(ports) * (2 + has_outer),
        len(ports),
        ((len(one.ports), len(one.endpoints)) for one in made),
        has_affinity=affinity_s is not None,
        is_internal_local=is_internal_local,
    )
    compiled = compile_service(
        service, made, GuestLocation("here", "", Family.IPV4), is_in_source_ranges=True
    )
    rules = GuestRules(Family.IPV4, (compiled.rules,), ())
    nothing = GuestRules(Family.IPV4, (), ())
    assert _rule_count(rules) - _rule_count(nothing) <= counts.rules
    assert _set_count(rules) - _set_count(nothing) <= counts.sets


def _rule_count(rules: GuestRules) -> int:
    return sum(map(len, iptables.render(rules).objects.values()))


def _set_count(rules: GuestRules) -> int:
    """Named sets and maps, and those that stand in a rule."""
    objects = nft.render(rules).objects
    named = sum(not name.startswith("chain ") for name in objects)
    return named + sum(_in_rules(lines) for name, lines in objects.items() if name.startswith("chain "))


def _in_rules(lines: Collection[str]) -> int:
    return sum(" map { " in line or " vmap { " in line for line in lines)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": RuleCounts(10, 10), "b": RuleCounts(MAX_RULES - 10, MAX_SETS - 10)}, {}),
        # Few rules, but more sets than the kernel makes in time.
        ({"a": RuleCounts(99, 0), "b": RuleCounts(MAX_RULES // 2, MAX_SETS + 1)}, {"b": "10000 endpoints"}),
        ({"a": RuleCounts(MAX_RULES, 1), "b": RuleCounts(2, 2)}, {"a": RULES}),
        # One goes for each limit.
        (
            {"a": RuleCounts(MAX_RULES, 1), "b": RuleCounts(2, MAX_SETS), "c": RuleCounts(1, 1)},
            {"a": RULES, "b": "10000 endpoints"},
        ),
    ],
)
def test_each_limit_leaves_out_what_costs_most_of_it(
    counts: dict[str, RuleCounts], expected: dict[str, str]
) -> None:
    found = services_beyond_limits(counts)
    assert found.keys() == expected.keys()
    assert all(found[key].startswith(words) for key, words in expected.items())
