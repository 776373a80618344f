# SPDX-License-Identifier: Apache-2.0
"""The brake: what a list takes against all appearances goes on to count, for a while."""

from daemonkit.kube.relist_guard import DistrustedRemoval, Lacking
from daemonkit.kube.resources import Key
from kubeproxy_ext.cache.object_cache import Feed
from kubeproxy_ext.compute.objects import (
    EndpointSliceObject,
    Meta,
    NamespaceObject,
    ServiceObject,
    SliceEndpoint,
)
from tenancy import keys

HOLD_S = 600.0


class Shown:
    """A world that only remembers what it was told."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], object] = {}
        self.removed: list[str] = []

    def put_service(self, item: ServiceObject) -> None:
        self.objects["service", item.metadata.namespace, item.metadata.name] = item

    def remove_service(self, key: Key) -> None:
        del self.objects["service", *key]
        self.removed.append(key[1])

    def put_slice(self, item: EndpointSliceObject) -> None:
        self.objects["slice", item.metadata.namespace, item.metadata.name] = item

    def remove_slice(self, key: Key) -> None:
        del self.objects["slice", *key]

    def put_namespace(self, item: NamespaceObject) -> None:
        self.objects["namespace", "", item.metadata.name] = item

    def remove_namespace(self, name: str) -> None:
        del self.objects["namespace", "", name]

    def names(self, kind: str) -> list[str]:
        return sorted(name for what, _, name in self.objects if what == kind)


def service(name: str, namespace: str = "a-web") -> ServiceObject:
    return ServiceObject(Meta(name=name, namespace=namespace))


def endpoints(name: str, *ips: str, namespace: str = "a-web") -> EndpointSliceObject:
    return EndpointSliceObject(
        Meta(name=name, namespace=namespace), endpoints=[SliceEndpoint(addresses=[ip]) for ip in ips]
    )


def namespace(name: str, tenant: str = "a") -> NamespaceObject:
    return NamespaceObject(Meta(name=name, annotations={keys.CLUSTER: tenant}))


def fed() -> tuple[Feed, Shown]:
    shown = Shown()
    feed = Feed(shown, HOLD_S)
    feed.put_namespace(namespace("a-web"))
    feed.put(service("x"))
    feed.put(service("y"))
    feed.put(endpoints("x-1", "10.0.0.1"))
    feed.put(endpoints("y-1"))
    return feed, shown


X, Y = ("a-web", "x"), ("a-web", "y")


def test_what_is_told_goes_on_at_once() -> None:
    feed, shown = fed()
    assert feed.tenants == {"a": {"a-web"}}
    assert feed.counts() == (2, 2)
    feed.remove_services([X], 0.0, by_list=False)
    feed.remove_slices([("a-web", "y-1"), ("a-web", "not-there")])
    feed.remove_services([("elsewhere", "x")], 0.0, by_list=True)
    assert (shown.names("service"), shown.names("slice")) == (["y"], ["x-1"])
    feed.remove_namespaces(["a-web"], 0.0, by_list=False)
    assert (shown.names("namespace"), feed.tenants) == ([], {})
    assert feed.held == ()


def test_events_may_take_all_services_of_a_namespace() -> None:
    feed, shown = fed()
    feed.remove_services([X], 0.0, by_list=False)
    feed.remove_services([Y], 0.0, by_list=False)
    assert (shown.names("service"), feed.held) == ([], ())


def test_a_list_may_take_some() -> None:
    feed, shown = fed()
    feed.remove_services([X], 0.0, by_list=True)
    assert (shown.names("service"), feed.held) == (["y"], ())


def test_a_list_that_takes_all_while_there_are_endpoints_is_held_against() -> None:
    feed, shown = fed()
    feed.remove_services([X, Y], 7.0, by_list=True)
    assert shown.names("service") == ["x", "y"]
    assert feed.held == (DistrustedRemoval(Lacking("Service", "a-web"), "a", frozenset({"x", "y"}), 7.0),)
    # A slice that goes on to change is no reason to let go, and counts.
    feed.put(endpoints("x-1", "10.0.0.2"))
    assert shown.names("service") == ["x", "y"]


def test_it_is_let_go_when_the_endpoints_have_gone_too() -> None:
    feed, shown = fed()
    feed.remove_services([X, Y], 7.0, by_list=True)
    feed.put(endpoints("x-1"))
    assert (shown.names("service"), feed.held) == ([], ())
    feed, shown = fed()
    feed.remove_services([X, Y], 7.0, by_list=True)
    feed.remove_slices([("a-web", "x-1")])
    assert (shown.names("service"), feed.held) == ([], ())


def test_a_list_without_endpoints_and_services_is_believed() -> None:
    feed, shown = fed()
    feed.remove_slices([("a-web", "x-1"), ("a-web", "y-1")])
    feed.remove_services([X, Y], 7.0, by_list=True)
    assert (shown.names("service"), feed.held) == ([], ())


def test_a_service_that_comes_back_makes_the_list_believed_in_the_rest() -> None:
    feed, shown = fed()
    feed.remove_services([X, Y], 7.0, by_list=True)
    feed.put(service("x"))
    assert (shown.names("service"), feed.held) == (["x"], ())


def test_it_is_let_go_after_a_while() -> None:
    feed, shown = fed()
    assert not feed.next_tick
    feed.remove_services([X, Y], 7.0, by_list=True)
    assert feed.next_tick == 7.0 + HOLD_S
    assert not feed.tick(6.0 + HOLD_S)
    assert feed.tick(7.0 + HOLD_S) == (
        DistrustedRemoval(Lacking("Service", "a-web"), "a", frozenset({"x", "y"}), 7.0),
    )
    assert not shown.names("service")
    assert not feed.held
    assert feed.tick(1e9) == ()


def test_a_namespace_that_a_list_lacks_stays_while_it_has_services() -> None:
    feed, shown = fed()
    feed.remove_namespaces(["a-web", "unknown"], 1.0, by_list=True)
    assert feed.tenants == {"a": {"a-web"}}
    assert [held.lacking for held in feed.held] == [Lacking("Namespace", "a-web")]
    feed.remove_services([X], 2.0, by_list=False)
    assert shown.names("namespace") == ["a-web"]
    feed.remove_services([Y], 2.0, by_list=False)
    assert (shown.names("namespace"), feed.tenants, feed.held) == ([], {}, ())


def test_a_namespace_that_is_back_is_not_held_any_more() -> None:
    feed, shown = fed()
    feed.remove_namespaces(["a-web"], 1.0, by_list=True)
    feed.put_namespace(namespace("a-web"))
    assert (shown.names("namespace"), feed.held) == (["a-web"], ())


def test_services_and_their_namespace_can_both_be_held() -> None:
    feed, shown = fed()
    feed.remove_namespaces(["a-web"], 1.0, by_list=True)
    feed.remove_services([X, Y], 2.0, by_list=True)
    assert {held.lacking.kind for held in feed.held} == {"Namespace", "Service"}
    feed.remove_slices([("a-web", "x-1")])
    assert not feed.held
    assert (shown.names("namespace"), shown.names("service")) == ([], [])


def test_a_namespace_may_change_its_tenant() -> None:
    feed, _ = fed()
    changes = feed.namespace_changes
    feed.put_namespace(namespace("a-web", "b"))
    assert feed.tenants == {"b": {"a-web"}}
    assert feed.namespace_changes > changes


def test_another_watch_takes_over() -> None:
    feed, shown = fed()
    x, z, one = service("x"), service("z"), endpoints("x-1", "10.0.0.9")
    feed.take_over("a-web", {"x": x, "z": z}, {"x-1": one}, 5.0)
    assert (shown.names("service"), shown.names("slice")) == (["x", "z"], ["x-1"])
    assert (list(feed.services("a-web")), list(feed.slices("a-web"))) == ([x, z], [one])
    # Its list, too, has to be believable.
    feed.take_over("a-web", {}, {"x-1": one}, 6.0)
    assert shown.names("service") == ["x", "z"]
    assert [held.since for held in feed.held] == [6.0]


def test_what_nobody_wants_is_forgotten_with_what_was_held_of_it() -> None:
    feed, shown = fed()
    feed.remove_services([X, Y], 7.0, by_list=True)
    feed.forget("a-web")
    assert (shown.names("service"), shown.names("slice")) == ([], [])
    assert (feed.held, feed.tenants) == ((), {"a": {"a-web"}})
    feed, shown = fed()
    feed.remove_namespaces(["a-web"], 7.0, by_list=True)
    feed.forget("a-web")
    assert (feed.held, feed.tenants, shown.objects) == ((), {}, {})


def test_a_tenant_with_endpoints_and_without_services_is_bare() -> None:
    feed, _ = fed()
    assert not feed.is_bare("a")
    feed.remove_services([X, Y], 0.0, by_list=False)
    assert feed.is_bare("a")
    feed.remove_slices([("a-web", "x-1")])
    assert not feed.is_bare("a")
    assert not feed.is_bare("b")


def test_what_was_known_before_a_first_list_without_services_is_held_like_what_a_list_takes() -> None:
    feed, shown = fed()
    feed.remove_services([X, Y], 0.0, by_list=False)
    feed.hold([service("x"), service("y")], 3.0)
    assert shown.names("service") == ["x", "y"]
    assert feed.held == (DistrustedRemoval(Lacking("Service", "a-web"), "a", frozenset({"x", "y"}), 3.0),)
    feed.put(service("z"))
    assert shown.names("service") == ["z"]
    # A plausible list is believed.
    feed.hold([service("x")], 4.0)
    feed.hold([service("x", "a-empty")], 4.0)
    assert shown.names("service") == ["z"]


def test_a_service_that_cannot_be_read_is_neither_as_it_was_nor_gone() -> None:
    shown = Shown()
    feed = Feed(shown, HOLD_S)
    feed.put_namespace(namespace("a-web"))
    feed.put(service("web"))
    feed.put(endpoints("web-1", "10.0.0.1"))
    # A list has it, and nothing else: its rules end, and the list lacks nothing.
    feed.spoil_service(("a-web", "web"))
    feed.remove_services([("a-web", "web")], 0.0, by_list=True)
    assert shown.names("service") == []
    assert feed.held == ()
    assert not feed.is_bare("a")
    # What was saved of such a namespace is not held against its list.
    feed.hold([service("web")], 0.0)
    assert shown.names("service") == []
    feed.clear_service(("a-web", "web"))
    assert feed.is_bare("a")
    feed.put(service("web"))
    assert shown.names("service") == ["web"]


def test_a_list_with_one_that_cannot_be_read_is_believed_in_the_rest() -> None:
    shown = Shown()
    feed = Feed(shown, HOLD_S)
    feed.put_namespace(namespace("a-web"))
    for name in ("web", "shop"):
        feed.put(service(name))
    feed.put(endpoints("web-1", "10.0.0.1"))
    feed.remove_services([("a-web", "web"), ("a-web", "shop")], 0.0, by_list=True)
    assert [held.names for held in feed.held] == [frozenset({"web", "shop"})]
    feed.spoil_service(("a-web", "web"))
    assert feed.held == ()
    assert shown.names("service") == []


def test_another_watch_tells_which_services_cannot_be_read() -> None:
    shown = Shown()
    feed = Feed(shown, HOLD_S)
    feed.put_namespace(namespace("a-web"))
    feed.put(service("web"))
    slices = {"web-1": endpoints("web-1", "10.0.0.1")}
    feed.take_over("a-web", {}, slices, 0.0, spoiled=("web",))
    assert (shown.names("service"), feed.held) == ([], ())
    feed.take_over("a-web", {}, slices, 0.0)
    assert feed.is_bare("a")
