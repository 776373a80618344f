# SPDX-License-Identifier: Apache-2.0
"""For all events: tenants are separate, and only the current objects count, not their order."""

from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import GuestView
from kubeproxy_ext.compute.service_state import ServiceState
from ruleset.model import (
    Family,
)
from tests.unit.kubeproxy_ext.compute import builders
from tests.unit.kubeproxy_ext.compute.builders import put, remove
from tests.unit.kubeproxy_ext.compute.service_states import state_of

_VIEWS = tuple(
    GuestView(tenant, networks, pod_ips, "here", zone, (), family)
    for tenant in ("A", "B", None)
    for networks, pod_ips, zone in (
        ((), ("10.1.0.2", "fd00:1::2"), None),
        (("blue",), ("10.9.0.2",), "b"),
        (("blue", "default"), ("10.1.0.2",), ""),
    )
    for family in Family
)

_ADDRESSES = ("172.30.0.1", "172.30.0.2", "1.2.3.4", "fd00:172::1", "1.2.3")

_BACKENDS = ("10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0")

_SERVICES = ("s", "t", "kubernetes")


def _references(namespaces: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.builds("{}/{}".format, st.sampled_from(namespaces), st.sampled_from(_SERVICES))


def _some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=2)


def _objects(tenant: str) -> st.SearchStrategy[objects.AnyObject]:
    """Objects of one tenant: two namespaces, few names and addresses, so that they meet."""
    names = (f"{tenant}-default", f"{tenant}-web")
    called = {names[0]: "default", names[1]: "web"}
    return st.one_of(
        st.sampled_from(names).map(lambda name: builders.namespace(name, tenant, called[name])),
        st.builds(
            builders.service,
            _references(names),
            st.lists(st.sampled_from(_ADDRESSES), min_size=1, max_size=2),
            own_ip=st.none() | st.sampled_from(_ADDRESSES),
            network=st.sampled_from([None, "blue"]),
            created=st.sampled_from(["2025", "2026"]),
            protocol=st.sampled_from(["TCP", "UDP"]),
            external=_some(_ADDRESSES),
            balancer=_some(_ADDRESSES),
            ranges=_some(("10.1.0.0/16", "fd00::/8", "x")),
            internal=st.sampled_from(["Cluster", "Local"]),
        ),
        st.builds(
            lambda reference, ips, **more: builders.endpoint_slice(reference, *ips, **more),
            _references(names),
            _some(_BACKENDS),
            number=st.integers(1, 2),
            node=st.sampled_from([None, "here", "there"]),
            protocol=st.sampled_from(["TCP", "UDP"]),
            zones=_some(("a", "b")),
        ),
    )


_NODES = st.sampled_from(["a", "b"]).map(lambda zone: builders.node("here", zone))

_ObjectEvent = tuple[bool, objects.AnyObject]


def _events(tenants: tuple[str, ...], size: int) -> st.SearchStrategy[list[_ObjectEvent]]:
    """Puts and removals; True is a put. Three puts to a removal, and namespaces at the start as often as
    not, or little would be anyone's."""
    anything = st.one_of(*(_objects(tenant) for tenant in tenants), _NODES)
    # With a least size, as lists are drawn about five long without.
    drawn = st.lists(
        st.tuples(st.sampled_from([True, True, True, False]), anything), min_size=size // 2, max_size=size
    )
    known: list[_ObjectEvent] = [
        (True, builders.namespace(f"{tenant}-{called}", tenant, called))
        for tenant in tenants
        for called in ("default", "web")
    ]
    return st.builds(lambda start, rest: [*start, *rest], st.sampled_from([known, []]), drawn)


def _apply(state: ServiceState, event: _ObjectEvent) -> None:
    is_put, item = event
    (put if is_put else remove)(state, item)


def _identity(item: objects.AnyObject) -> tuple[type, str, str]:
    return type(item), item.metadata.namespace, item.metadata.name


def _final_objects(events: list[_ObjectEvent]) -> list[objects.AnyObject]:
    """The objects that remain after all events."""
    current: dict[tuple[type, str, str], objects.AnyObject] = {}
    for is_put, item in events:
        current.pop(_identity(item), None)
        if is_put:
            current[_identity(item)] = item
    return list(current.values())


def _all_rules(state: ServiceState) -> list[object]:
    return [(result.rules, result.serving) for result in map(state.result_for, _VIEWS)]


@given(st.data())
def test_events_of_a_tenant_never_change_anothers_rules(data: st.DataObject) -> None:
    ours, theirs = data.draw(_events(("A",), 12)), data.draw(_events(("B",), 12))
    theirs = [event for event in theirs if not isinstance(event[1], objects.NodeObject)]
    alone, beside = ServiceState(), ServiceState()
    views = [view for view in _VIEWS if view.tenant == "A"]
    for event in ours:
        _apply(alone, event)
        _apply(beside, event)
        beside.take_changed_groups()
        for _ in range(data.draw(st.integers(0, 2))):
            if theirs:
                _apply(beside, theirs.pop())
                assert all(group.tenant == "B" for group in beside.take_changed_groups())
        assert [beside.rules_for(view) for view in views] == [alone.rules_for(view) for view in views]


@given(st.data())
def test_order_of_objects_does_not_change_rules(data: st.DataObject) -> None:
    items = _final_objects(data.draw(_events(("A", "B"), 16)))
    shuffled = data.draw(st.permutations(items))
    assert _all_rules(state_of(*items)) == _all_rules(state_of(*shuffled))


@given(_events(("A",), 30), st.integers(1, 3))
def test_incremental_rules_equal_rules_from_scratch(events: list[_ObjectEvent], batch: int) -> None:
    """Each group with changed rules is reported, and all rules are well-formed."""
    state = ServiceState()
    before = _all_rules(state)
    for end in range(batch, len(events) + batch, batch):
        for event in events[end - batch : end]:
            _apply(state, event)
        touched = state.take_changed_groups()
        after = _all_rules(state)
        assert after == _all_rules(state_of(*_final_objects(events[:end])))
        for view, old, new in zip(_VIEWS, before, after, strict=True):
            assert old == new or touched & set(view.groups)
        before = after
    for view in _VIEWS:
        rules = state.rules_for(view)
        addresses = [(one.ip, one.port, one.protocol) for one in rules.frontends()]
        assert len(addresses) == len(set(addresses))
        names = [service.service for service in rules.services]
        assert names == sorted(set(names))
        assert all((":" in one.ip) == (view.family is Family.IPV6) for one in rules.frontends())
