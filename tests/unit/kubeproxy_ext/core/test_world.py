# SPDX-License-Identifier: Apache-2.0
"""The world answers as its objects say, whatever came before, and names no change that is none."""

import gc
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kubeproxy_ext.core import wire
from kubeproxy_ext.core.view import EVERY_NETWORK, Group, GuestView
from kubeproxy_ext.core.world import World
from ruleset.model import (
    Capture,
    Endpoint,
    Family,
    GuestRules,
    Protocol,
    Refusal,
    ServiceRules,
    Target,
)
from tests.unit.kubeproxy_ext.core import feed
from tests.unit.kubeproxy_ext.core.feed import put, remove

VIEW = GuestView("A", (), ("10.1.0.2",), "here", None, ("172.30.0.0/16", "fd00:172::/64"), Family.IPV4)
DEFAULT = Group("A", "default")


def world_of(*items: wire.AnyObject) -> World:
    world = World()
    for item in items:
        put(world, item)
    return world


def meanings(rules: GuestRules) -> dict[str, str]:
    """What becomes of packets to each address: `service port: endpoints` or a refusal."""
    return {
        capture.ip: f"{capture.service_port}: "
        + (
            capture.to.name
            if isinstance(capture.to, Refusal)
            else ",".join(str(endpoint) for endpoint in capture.to.endpoints)
        )
        for capture in rules.captures()
    }


def test_a_guests_rules_in_full() -> None:
    world = world_of(
        feed.namespace("A-web", "A", "web"),
        feed.service("A-web/s", "172.30.0.41", own_ip="10.96.0.5"),
        feed.endpoint_slice("A-web/s", "10.0.0.2", "10.0.0.1"),
    )
    target = Target(
        "A-web/s:p", Protocol.TCP, False, (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080))
    )
    assert world.rules_for(VIEW) == GuestRules(
        Family.IPV4,
        (
            ServiceRules(
                "A-web/s",
                (
                    Capture("172.30.0.41", 80, Protocol.TCP, "A-web/s:p", target),
                    Capture("10.96.0.5", 80, Protocol.TCP, "A-web/s:p", target),
                ),
            ),
        ),
        ("172.30.0.0/16",),
    )


def test_each_family_has_its_own_rules() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/s", ["172.30.0.41", "fd00:172::41"]),
        feed.endpoint_slice("A-web/s", "10.0.0.1"),
        feed.endpoint_slice("A-web/s", "fd00::1", number=2),
    )
    assert meanings(world.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}
    six = world.rules_for(replace(VIEW, family=Family.IPV6))
    assert meanings(six) == {"fd00:172::41": "A-web/s:p: [fd00::1]:8080"}
    assert six.service_cidrs == ("fd00:172::/64",)


def test_nobody_has_a_service_whose_namespace_is_not_known() -> None:
    world = world_of(feed.service("A-web/s", "172.30.0.41"))
    nobodys = replace(VIEW, tenant=None)
    assert not world.rules_for(VIEW).services
    assert not world.rules_for(nobodys).services
    world.settle()
    world.put_namespace(feed.namespace("A-web", "A"))
    assert world.settle() == {DEFAULT}
    assert meanings(world.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: REJECT"}
    assert not world.rules_for(nobodys).services
    world.remove_namespace("A-web")
    assert world.settle() == {DEFAULT}
    assert not world.rules_for(VIEW).services


def test_the_super_clusters_own_services_are_of_no_tenant() -> None:
    world = World(has_all_namespaces=True)
    world.put_service(feed.service("default/kubernetes", "172.30.0.1"))
    world.put_namespace(feed.namespace("A-default", "A", "default"))
    world.put_service(feed.service("A-default/kubernetes", "172.30.7.7", own_ip="172.30.0.1"))
    world.put_slice(feed.endpoint_slice("A-default/kubernetes", "10.2.0.1"))
    blue = replace(VIEW, networks=("blue",))
    for view in (VIEW, blue):
        assert meanings(world.rules_for(view)) == {
            "172.30.7.7": "A-default/kubernetes:p: 10.2.0.1:8080",
            "172.30.0.1": "A-default/kubernetes:p: 10.2.0.1:8080",
        }
    world.settle()
    world.put_slice(feed.endpoint_slice("A-default/kubernetes", "10.2.0.2"))
    touched = world.settle()
    assert touched == {Group("A", EVERY_NETWORK)}
    assert touched & set(blue.groups)
    assert meanings(world.rules_for(replace(VIEW, tenant=None))) == {
        "172.30.0.1": "default/kubernetes:p: REJECT"
    }


def test_a_guest_sees_its_own_networks_alone() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/d", "172.30.0.1"),
        feed.service("A-web/b", "172.30.0.2", network="blue"),
        feed.service("A-web/g", "172.30.0.3", network="green"),
    )

    def seen(*networks: str) -> set[str]:
        rules = world.rules_for(replace(VIEW, networks=networks))
        return {service.service for service in rules.services}

    assert seen() == seen("default") == {"A-web/d"}
    assert seen("blue") == {"A-web/b"}
    assert seen("green", "blue") == {"A-web/b", "A-web/g"}


def test_what_was_said_before_touches_nothing() -> None:
    items = (
        feed.namespace("A-web", "A"),
        feed.service("A-web/s", "172.30.0.41"),
        feed.endpoint_slice("A-web/s", "10.0.0.1"),
    )
    world = world_of(*items)
    outcome = world.outcome_for(VIEW)
    world.settle()
    for item in items:
        put(world, item)
    world.put_service(feed.service("A-web/s", "172.30.0.41", labels={"app": "x"}))
    world.put_slice(feed.endpoint_slice("A-web/s", "10.0.0.1", annotations={"leader": "me"}))
    assert world.settle() == frozenset()
    assert world.outcome_for(VIEW) is outcome


def test_endpoints_that_pass_to_a_sibling_slice_touch_nothing() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/s", "172.30.0.41"),
        feed.endpoint_slice("A-web/s", "10.0.0.1", "10.0.0.2"),
    )
    outcome = world.outcome_for(VIEW)
    world.settle()
    world.put_slice(feed.endpoint_slice("A-web/s", "10.0.0.1"))
    world.put_slice(feed.endpoint_slice("A-web/s", "10.0.0.2", number=2))
    assert world.settle() == frozenset()
    assert world.outcome_for(VIEW) is outcome


def test_one_endpoint_recomputes_one_service() -> None:
    services = [feed.service(f"A-web/s{n}", f"172.30.0.{n}") for n in range(1, 6)]
    slices = [feed.endpoint_slice(f"A-web/s{n}", f"10.0.0.{n}") for n in range(1, 6)]
    world = world_of(feed.namespace("A-web", "A"), *services, *slices)
    before = world.rules_for(VIEW)
    world.settle()
    world.put_slice(feed.endpoint_slice("A-web/s3", "10.0.9.9"))
    assert world.settle() == {DEFAULT}
    after = world.rules_for(VIEW)
    pairs = zip(before.services, after.services, strict=True)
    assert [one.service for one, other in pairs if one is not other] == ["A-web/s3"]


def test_serving_alone_is_a_change_too() -> None:
    world = world_of(feed.namespace("A-web", "A"), feed.service("A-web/s", "172.30.0.41", protocol="UDP"))
    one = feed.endpoint_slice("A-web/s", protocol="UDP")

    def endpoints(*, second_serves: bool) -> wire.EndpointSliceObject:
        return wire.EndpointSliceObject(
            metadata=one.metadata,
            address_type="IPv4",
            ports=one.ports,
            endpoints=[
                wire.SliceEndpoint(addresses=["10.0.0.1"]),
                wire.SliceEndpoint(
                    addresses=["10.0.0.2"],
                    conditions=wire.Conditions(ready=False, serving=second_serves),
                ),
            ],
        )

    world.put_slice(endpoints(second_serves=True))
    before = world.outcome_for(VIEW)
    world.settle()
    world.put_slice(endpoints(second_serves=False))
    assert world.settle() == {DEFAULT}
    after = world.outcome_for(VIEW)
    assert after.rules == before.rules
    assert [one.endpoints for one in before.serving] == [
        (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080))
    ]
    assert [one.endpoints for one in after.serving] == [(Endpoint("10.0.0.1", 8080),)]


def test_guests_whose_source_ranges_come_out_alike_share_one_result() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/s", "172.30.0.41", balancer=["1.2.3.4"], ranges=["10.1.0.0/24"]),
        feed.endpoint_slice("A-web/s", "10.0.0.1"),
    )
    near, near_too, far = (replace(VIEW, pod_ips=(ip,)) for ip in ("10.1.0.2", "10.1.0.3", "10.9.0.2"))
    outcomes = [world.outcome_for(view) for view in (near, near_too, far)]
    assert outcomes[0] is outcomes[1]
    assert world.group_key(near) == world.group_key(near_too) != world.group_key(far)
    assert meanings(outcomes[0].rules)["1.2.3.4"] == "A-web/s:p: 10.0.0.1:8080"
    assert meanings(outcomes[2].rules)["1.2.3.4"] == "A-web/s:p: DROP"


def test_results_that_nobody_holds_are_not_kept() -> None:
    world = world_of(feed.namespace("A-web", "A"), feed.service("A-web/s", "172.30.0.41"))
    rules = id(world.outcome_for(VIEW))
    gc.collect()
    assert len(world._outcomes) == 0  # noqa: SLF001 - what is kept cannot be seen from outside
    assert rules


def test_a_policy_that_changes_is_seen() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/s", "172.30.0.41"),
        feed.endpoint_slice("A-web/s", "10.0.0.1", node="there"),
    )
    world.rules_for(VIEW)
    world.settle()
    world.put_service(feed.service("A-web/s", "172.30.0.41", internal="Local"))
    assert world.settle() == {DEFAULT}
    assert meanings(world.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: DROP"}
    # Also from a place from which nobody looked before the change.
    other = meanings(world.rules_for(replace(VIEW, node="there")))
    assert other == {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}


def test_zones_come_from_the_node_unless_the_view_knows_better() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.node("here", "a"),
        feed.service("A-web/s", "172.30.0.41"),
        feed.endpoint_slice("A-web/s", "10.0.0.1", zones=["a"]),
        feed.endpoint_slice("A-web/s", "10.0.0.2", number=2, zones=["b"]),
    )

    def reached(view: GuestView) -> str:
        return meanings(world.rules_for(view))["172.30.0.41"].partition(": ")[2]

    assert reached(VIEW) == "10.0.0.1:8080"
    assert reached(replace(VIEW, zone="b")) == "10.0.0.2:8080"
    assert reached(replace(VIEW, zone="")) == "10.0.0.1:8080,10.0.0.2:8080"
    world.settle()
    world.put_node(feed.node("there", "b"))
    assert world.settle() == frozenset()
    world.put_node(feed.node("here", "b"))
    assert world.settle() == {DEFAULT}
    assert reached(VIEW) == "10.0.0.2:8080"
    world.remove_node("here")
    assert reached(VIEW) == "10.0.0.1:8080,10.0.0.2:8080"


def test_a_contested_address_passes_on_when_its_holder_goes() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/old", "172.30.0.1", external=["1.2.3.4"], created="2025"),
        feed.service("A-web/new", "172.30.0.2", external=["1.2.3.4"], created="2026"),
    )
    assert meanings(world.rules_for(VIEW))["1.2.3.4"] == "A-web/old:p: REJECT"
    world.remove_service(("A-web", "old"))
    assert meanings(world.rules_for(VIEW)) == {
        "172.30.0.2": "A-web/new:p: REJECT",
        "1.2.3.4": "A-web/new:p: REJECT",
    }


def test_a_service_that_lost_all_its_addresses_is_not_there() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/one", "172.30.0.1", created="2025"),
        feed.service("A-web/two", "172.30.0.1", created="2026"),
    )
    assert [service.service for service in world.rules_for(VIEW).services] == ["A-web/one"]


def test_addresses_that_two_services_swap_are_not_contested() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/one", "172.30.0.1", external=["1.1.1.1"], created="2025"),
        feed.service("A-web/two", "172.30.0.2", external=["2.2.2.2"], created="2026"),
    )
    world.rules_for(VIEW)
    world.put_service(feed.service("A-web/two", "172.30.0.2", external=["1.1.1.1"], created="2026"))
    assert meanings(world.rules_for(VIEW))["1.1.1.1"] == "A-web/one:p: REJECT"
    world.put_service(feed.service("A-web/one", "172.30.0.1", external=["2.2.2.2"], created="2025"))
    assert meanings(world.rules_for(VIEW)) == {
        "172.30.0.1": "A-web/one:p: REJECT",
        "2.2.2.2": "A-web/one:p: REJECT",
        "172.30.0.2": "A-web/two:p: REJECT",
        "1.1.1.1": "A-web/two:p: REJECT",
    }


def test_a_namespace_that_changes_hands_touches_both() -> None:
    world = world_of(feed.namespace("A-web", "A"), feed.service("A-web/s", "172.30.0.1"))
    theirs = replace(VIEW, tenant="B")
    assert [len(world.rules_for(view).services) for view in (VIEW, theirs)] == [1, 0]
    world.settle()
    world.put_namespace(feed.namespace("A-web", "B"))
    assert world.settle() == {DEFAULT, Group("B", "default")}
    assert [len(world.rules_for(view).services) for view in (VIEW, theirs)] == [0, 1]


def test_who_has_an_address_in_whatever_network_is_known_of_one_tenant() -> None:
    world = world_of(
        feed.namespace("a-x", "a"),
        feed.namespace("b-x", "b"),
        feed.service("a-x/blue", "10.96.0.1", own_ip="10.32.0.1", network="blue"),
        feed.service("a-x/plain", "10.96.0.2", external=["10.32.0.1"]),
        feed.service("b-x/other", "10.96.0.3", own_ip="10.32.0.1"),
    )
    assert world.holders("a", "10.32.0.1") == (("a-x/blue", "blue"), ("a-x/plain", "default"))
    assert world.holders("a", "10.96.0.3") == ()
    assert world.holders("b", "10.32.0.1") == (("b-x/other", "default"),)


def test_tenants_whose_services_vanished_are_named() -> None:
    world = world_of(feed.namespace("A-web", "A"), feed.endpoint_slice("A-web/s", "10.0.0.1"))
    assert world.emptied_tenants() == {"A"}
    world.put_service(feed.service("A-web/s", "172.30.0.1"))
    assert world.emptied_tenants() == frozenset()


def test_what_is_not_retained_is_computed_anew_when_asked() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.namespace("B-web", "B"),
        feed.service("A-web/s", "172.30.0.1"),
        feed.service("B-web/s", "172.30.0.1"),
    )
    theirs = replace(VIEW, tenant="B")
    before = (world.rules_for(VIEW), world.rules_for(theirs))
    world.retain(VIEW.groups)
    assert len(world._compiled) == 1  # noqa: SLF001 - what is kept cannot be seen from outside
    assert (world.rules_for(VIEW), world.rules_for(theirs)) == before


# ------------------------------------------------------------------------------ properties

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


def _objects(tenant: str) -> st.SearchStrategy[wire.AnyObject]:
    """Objects of one tenant: two namespaces, few names and addresses, so that they meet."""
    names = (f"{tenant}-default", f"{tenant}-web")
    called = {names[0]: "default", names[1]: "web"}
    return st.one_of(
        st.sampled_from(names).map(lambda name: feed.namespace(name, tenant, called[name])),
        st.builds(
            feed.service,
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
            lambda reference, ips, **more: feed.endpoint_slice(reference, *ips, **more),
            _references(names),
            _some(_BACKENDS),
            number=st.integers(1, 2),
            node=st.sampled_from([None, "here", "there"]),
            protocol=st.sampled_from(["TCP", "UDP"]),
            zones=_some(("a", "b")),
        ),
    )


_NODES = st.sampled_from(["a", "b"]).map(lambda zone: feed.node("here", zone))
_Event = tuple[bool, wire.AnyObject]


def _events(tenants: tuple[str, ...], size: int) -> st.SearchStrategy[list[_Event]]:
    """Puts and removals; True is a put. Three puts to a removal, and namespaces at the start as often as
    not, or little would be anyone's."""
    anything = st.one_of(*(_objects(tenant) for tenant in tenants), _NODES)
    # With a least size, as lists are drawn about five long without.
    drawn = st.lists(
        st.tuples(st.sampled_from([True, True, True, False]), anything), min_size=size // 2, max_size=size
    )
    known: list[_Event] = [
        (True, feed.namespace(f"{tenant}-{called}", tenant, called))
        for tenant in tenants
        for called in ("default", "web")
    ]
    return st.builds(lambda start, rest: [*start, *rest], st.sampled_from([known, []]), drawn)


def _apply(world: World, event: _Event) -> None:
    is_put, item = event
    (put if is_put else remove)(world, item)


def _identity(item: wire.AnyObject) -> tuple[type, str, str]:
    return type(item), item.metadata.namespace, item.metadata.name


def _held(events: list[_Event]) -> list[wire.AnyObject]:
    """The objects that remain after all events."""
    held: dict[tuple[type, str, str], wire.AnyObject] = {}
    for is_put, item in events:
        held.pop(_identity(item), None)
        if is_put:
            held[_identity(item)] = item
    return list(held.values())


def _all_rules(world: World) -> list[object]:
    return [(outcome.rules, outcome.serving) for outcome in map(world.outcome_for, _VIEWS)]


@given(st.data())
def test_no_event_of_one_tenant_changes_anothers_rules(data: st.DataObject) -> None:
    ours, theirs = data.draw(_events(("A",), 12)), data.draw(_events(("B",), 12))
    theirs = [event for event in theirs if not isinstance(event[1], wire.NodeObject)]
    alone, beside = World(), World()
    views = [view for view in _VIEWS if view.tenant == "A"]
    for event in ours:
        _apply(alone, event)
        _apply(beside, event)
        beside.settle()
        for _ in range(data.draw(st.integers(0, 2))):
            if theirs:
                _apply(beside, theirs.pop())
                assert all(group.tenant == "B" for group in beside.settle())
        assert [beside.rules_for(view) for view in views] == [alone.rules_for(view) for view in views]


@given(st.data())
def test_any_order_of_the_same_objects_gives_the_same_rules(data: st.DataObject) -> None:
    items = _held(data.draw(_events(("A", "B"), 16)))
    shuffled = data.draw(st.permutations(items))
    assert _all_rules(world_of(*items)) == _all_rules(world_of(*shuffled))


@given(_events(("A",), 30), st.integers(1, 3))
def test_step_by_step_is_as_from_scratch(events: list[_Event], batch: int) -> None:
    """And no group keeps silent whose rules have changed; whoever sees rules finds them well-formed."""
    world = World()
    before = _all_rules(world)
    for end in range(batch, len(events) + batch, batch):
        for event in events[end - batch : end]:
            _apply(world, event)
        touched = world.settle()
        after = _all_rules(world)
        assert after == _all_rules(world_of(*_held(events[:end])))
        for view, old, new in zip(_VIEWS, before, after, strict=True):
            assert old == new or touched & set(view.groups)
        before = after
    for view in _VIEWS:
        rules = world.rules_for(view)
        addresses = [(one.ip, one.port, one.protocol) for one in rules.captures()]
        assert len(addresses) == len(set(addresses))
        names = [service.service for service in rules.services]
        assert names == sorted(set(names))
        assert all((":" in one.ip) == (view.family is Family.IPV6) for one in rules.captures())


def test_what_is_multiplied_beyond_all_bounds_is_left_out_before_it_is_made() -> None:
    ports = [wire.ServicePort(f"p{number}", "TCP", number) for number in range(1, 5001)]
    huge = feed.service("A-web/huge", "172.30.0.42")
    wide = replace_spec(huge, ports=ports, external_ips=[f"11.0.{n // 256}.{n % 256}" for n in range(5000)])
    many = feed.endpoint_slice("A-web/huge", *(f"10.2.{n // 256}.{n % 256}" for n in range(1000)))
    deep = structs.replace(many, ports=[wire.SlicePort(port.name, "TCP", port.port) for port in ports])
    world = world_of(
        feed.namespace("A-web", "A", "web"),
        feed.service("A-web/s", "172.30.0.41"),
        feed.endpoint_slice("A-web/s", "10.0.0.1"),
        wide,
    )
    expected = {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}
    said = "all of it: with it a guest would have more than 100000 rules"
    assert meanings(world.rules_for(VIEW)) == expected
    assert [(one.service, one.text) for one in world.problems()] == [("huge", said)]
    put(world, replace_spec(huge, ports=ports))
    put(world, deep)
    put(world, feed.endpoint_slice("A-web/huge", "10.2.0.1"))
    assert meanings(world.rules_for(VIEW)).keys() == {"172.30.0.41", "172.30.0.42"}
    put(world, deep)
    assert meanings(world.rules_for(VIEW)) == expected
    assert [(one.service, one.text) for one in world.problems()] == [("huge", said)]
    put(world, huge)
    put(world, many)
    assert meanings(world.rules_for(VIEW)).keys() == {"172.30.0.41", "172.30.0.42"}
    assert world.problems() == ()


def replace_spec(item: wire.ServiceObject, **fields: object) -> wire.ServiceObject:
    return structs.replace(item, spec=structs.replace(item.spec, **fields))
