# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a Service port, and which of them are used."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.compute.endpoints import Candidate, categorize, join, serving
from kubeproxy_ext.compute.parse import EndpointInfo, PortInfo, SliceInfo
from ruleset.model import Endpoint, Family, Protocol
from tests.cases.services import case_file
from tests.cases.services.load import load_shared

CASES = load_shared()


def source(ip: str, *, node: str | None = None, state: str = "ready") -> EndpointInfo:
    return EndpointInfo(
        ip,
        node,
        is_ready=state == "ready",
        is_serving=state != "dead",
        is_terminating=state == "term",
        zones=(),
        nodes=(),
    )


def endpoint_slice(name: str, port: PortInfo, *endpoints: EndpointInfo) -> SliceInfo:
    return SliceInfo("a", name, "s", Family.IPV4, (port,), endpoints, ())


def candidate(case: case_file.ChoiceEndpoint) -> Candidate:
    described = EndpointInfo(
        case.name,
        None,
        is_ready=case.state == "ready",
        is_serving=case.state != "dead",
        is_terminating=case.state == "term",
        zones=case.zones,
        nodes=case.nodes,
    )
    return Candidate(Endpoint(case.name, 80), described, case.is_local)


def names(endpoints: tuple[Endpoint, ...] | None) -> frozenset[str] | None:
    return None if endpoints is None else frozenset(endpoint.ip for endpoint in endpoints)


@pytest.mark.parametrize("case", CASES.endpoint_choices, ids=lambda case: case.id)
def test_categorize(case: case_file.EndpointChoiceCase) -> None:
    """The sets that kube-proxy computes, where it uses them."""
    is_external = case.node_port > 0
    found = categorize(
        [candidate(one) for one in case.endpoints],
        case.me,
        case.zone,
        needs_cluster=case.itp == "Cluster" or is_external,
        needs_local=case.itp == "Local" or (case.etp == "Local" and is_external),
    )
    assert (names(found.cluster), names(found.local)) == (case.cluster, case.local)
    assert found.has_any == case.has_any
    if case.all is not None:
        assert {*(found.cluster or ()), *(found.local or ())} == {Endpoint(name, 80) for name in case.all}


def test_ports_join_by_name_and_protocol() -> None:
    web, dns = PortInfo("web", Protocol.TCP, 80), PortInfo("dns", Protocol.UDP, 53)
    found = join(
        [web, dns],
        [
            endpoint_slice("s-1", PortInfo("web", Protocol.TCP, 8080), source("10.0.0.1")),
            endpoint_slice("s-2", PortInfo("dns", Protocol.TCP, 5353), source("10.0.0.2")),
            endpoint_slice("s-3", PortInfo("80", Protocol.TCP, 80), source("10.0.0.3")),
        ],
        Family.IPV4,
        "here",
    )
    assert found == {
        ("web", Protocol.TCP): (Candidate(Endpoint("10.0.0.1", 8080), source("10.0.0.1"), False),)
    }


def test_slices_of_the_other_family_are_skipped() -> None:
    port = PortInfo("p", Protocol.TCP, 80)
    six = SliceInfo("a", "s-6", "s", Family.IPV6, (port,), (source("fd00::1"),), ())
    assert join([port], [six], Family.IPV4, "here") == {}


_PORT = PortInfo("p", Protocol.TCP, 80)

# Conditions of a copy, from the one that counts first.
_BY_RANK = (
    *({"ready": True}, {"ready": False, "serving": True}, {"ready": False, "serving": False}),
    *({"ready": True, "terminating": True}, {"ready": False, "serving": True, "terminating": True}),
    {"ready": False, "serving": False, "terminating": True},
)


def _copy(conditions: Mapping[str, bool], node: str | None, zones: tuple[str, ...] = ()) -> EndpointInfo:
    return EndpointInfo(
        "10.0.0.1",
        node,
        is_ready=conditions["ready"],
        is_serving=conditions.get("serving", True),
        is_terminating=conditions.get("terminating", False),
        zones=zones,
        nodes=(),
    )


def _joined(copies: Sequence[EndpointInfo], *, in_one_slice: bool) -> Candidate:
    slices = (
        [endpoint_slice("s-1", _PORT, *copies)]
        if in_one_slice
        else [endpoint_slice(f"s-{number}", _PORT, one) for number, one in enumerate(copies)]
    )
    (only,) = join([_PORT], slices, Family.IPV4, "here")["p", Protocol.TCP]
    return only


@pytest.mark.parametrize("in_one_slice", [True, False])
@pytest.mark.parametrize("nodes", list(product((None, "here", "there"), repeat=2)))
@pytest.mark.parametrize(("better", "worse"), list(combinations(_BY_RANK, 2)))
def test_the_copy_in_the_best_condition_counts(
    better: Mapping[str, bool], worse: Mapping[str, bool], nodes: tuple[str | None, ...], in_one_slice: bool
) -> None:
    """Whatever its place and node: with it count its node and hints, not those of the other copy.

    https://github.com/kubernetes/kubernetes/issues/135266
    """
    wins, loses = _copy(better, nodes[0], ("a",)), _copy(worse, nodes[1], ("b",))
    for copies in ((wins, loses), (loses, wins)):
        found = _joined(copies, in_one_slice=in_one_slice)
        assert found == Candidate(Endpoint("10.0.0.1", 80), wins, nodes[0] == "here")


@pytest.mark.parametrize("in_one_slice", [True, False])
@pytest.mark.parametrize("local_first", [True, False])
def test_of_copies_in_one_condition_the_local_one_counts(local_first: bool, in_one_slice: bool) -> None:
    far, near = source("10.0.0.1", node="there"), source("10.0.0.1", node="here")
    copies = (near, far) if local_first else (far, near)
    assert _joined(copies, in_one_slice=in_one_slice) == Candidate(Endpoint("10.0.0.1", 80), near, True)


@given(
    st.lists(
        st.builds(
            EndpointInfo,
            st.sampled_from(["10.0.0.1", "10.0.0.2"]),
            st.sampled_from([None, "here", "there"]),
            *(st.booleans(),) * 3,
            zones=st.sampled_from([(), ("a",), ("a", "b")]),
            nodes=st.sampled_from([(), ("here",), ("there",)]),
        ),
        max_size=6,
    ).flatmap(lambda made: st.tuples(st.just(made), st.permutations(made))),
    st.booleans(),
)
def test_the_order_of_copies_decides_nothing(
    orders: tuple[list[EndpointInfo], list[EndpointInfo]], in_one_slice: bool
) -> None:
    def choice(copies: list[EndpointInfo]) -> object:
        slices = (
            [endpoint_slice("s", _PORT, *copies)]
            if in_one_slice
            else [endpoint_slice(f"s-{number}", _PORT, one) for number, one in enumerate(copies)]
        )
        found = join([_PORT], slices, Family.IPV4, "here").get(("p", Protocol.TCP), ())
        return categorize(found, "here", "a", needs_cluster=True, needs_local=True), serving(found)

    assert choice(orders[0]) == choice(orders[1])
    usable = {one.ip for one in orders[0] if one.is_ready and not one.is_terminating}
    found = join([_PORT], [endpoint_slice("s", _PORT, *orders[0])], Family.IPV4, "here")
    assert usable <= {one.endpoint.ip for one in found.get(("p", Protocol.TCP), ()) if one.source.is_ready}


@pytest.mark.parametrize("case", CASES.endpoint_map, ids=lambda case: case.id)
def test_endpoints_are_sorted_by_text(case: case_file.EndpointMap) -> None:
    for endpoints in (*case.before.values(), *case.after.values()):
        port = int(endpoints[0].rpartition(":")[2])
        sources = [source(text.rpartition(":")[0]) for text in reversed(endpoints)]
        service_port = PortInfo("p", Protocol.TCP, port)
        joined = join([service_port], [endpoint_slice("s-1", service_port, *sources)], Family.IPV4, "here")
        chosen = categorize(joined["p", Protocol.TCP], "here", "", needs_cluster=True, needs_local=False)
        assert chosen.cluster is not None
        assert tuple(str(endpoint) for endpoint in chosen.cluster) == endpoints


@pytest.mark.parametrize(
    ("hints", "selected"),
    [
        ((("here",), ("there",)), {"10.0.0.1"}),
        ((("here", "there"), ("there",)), {"10.0.0.1"}),
        ((("there",), ("there",)), {"10.0.0.2"}),  # none names this node: the zone's hints count
        ((("here",), ()), {"10.0.0.2"}),  # one has no node hint: the zone's hints count
    ],
)
def test_node_hints_come_before_zone_hints(hints: tuple[tuple[str, ...], ...], selected: set[str]) -> None:
    """Of two ready endpoints the second is in this zone."""
    candidates = [
        Candidate(
            Endpoint(f"10.0.0.{number}", 80),
            EndpointInfo(f"10.0.0.{number}", None, True, True, False, (zone,), nodes),
            False,
        )
        for number, (zone, nodes) in enumerate(zip(("z2", "z1"), hints, strict=True), 1)
    ]
    found = categorize(candidates, "here", "z1", needs_cluster=True, needs_local=False)
    assert {endpoint.ip for endpoint in found.cluster or ()} == selected


def test_serving_endpoints_may_be_unready_or_terminating() -> None:
    sources = [source("10.0.0.3", state="term"), source("10.0.0.2", state="dead"), source("10.0.0.1")]
    unready = EndpointInfo("10.0.0.4", None, False, True, False, (), ())
    found = serving(Candidate(Endpoint(one.ip, 53), one, False) for one in [*sources, unready])
    assert [endpoint.ip for endpoint in found] == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
