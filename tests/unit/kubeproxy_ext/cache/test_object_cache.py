# SPDX-License-Identifier: Apache-2.0
"""Changes reach the state, except removals by relists that other objects contradict."""

from daemonkit.kube.relist_guard import DistrustedRemoval, Lacking
from daemonkit.kube.resources import Key
from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.compute.objects import (
    EndpointSliceObject,
    Meta,
    NamespaceObject,
    ServiceObject,
    SliceEndpoint,
)
from tenancy import keys

HOLD_S = 600.0


class RecordingState:
    """Records the objects that the cache put and has not removed."""

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


def fed() -> tuple[ObjectCache, RecordingState]:
    state = RecordingState()
    cache = ObjectCache(state, HOLD_S)
    cache.put_namespace(namespace("a-web"))
    cache.put(service("x"))
    cache.put(service("y"))
    cache.put(endpoints("x-1", "10.0.0.1"))
    cache.put(endpoints("y-1"))
    return cache, state


X, Y = ("a-web", "x"), ("a-web", "y")


def test_changes_reach_the_state_at_once() -> None:
    cache, state = fed()
    assert cache.tenants == {"a": {"a-web"}}
    assert cache.counts() == (2, 2)
    cache.remove_services([X], 0.0, by_relist=False)
    cache.remove_slices([("a-web", "y-1"), ("a-web", "not-there")])
    cache.remove_services([("elsewhere", "x")], 0.0, by_relist=True)
    assert (state.names("service"), state.names("slice")) == (["y"], ["x-1"])
    cache.remove_namespaces(["a-web"], 0.0, by_relist=False)
    assert (state.names("namespace"), cache.tenants) == ([], {})
    assert cache.distrusted == ()


def test_events_may_remove_all_services_of_a_namespace() -> None:
    cache, state = fed()
    cache.remove_services([X], 0.0, by_relist=False)
    cache.remove_services([Y], 0.0, by_relist=False)
    assert (state.names("service"), cache.distrusted) == ([], ())


def test_relist_may_remove_some_services() -> None:
    cache, state = fed()
    cache.remove_services([X], 0.0, by_relist=True)
    assert (state.names("service"), cache.distrusted) == (["y"], ())


def test_relist_without_services_but_endpoints_is_distrusted() -> None:
    cache, state = fed()
    cache.remove_services([X, Y], 7.0, by_relist=True)
    assert state.names("service") == ["x", "y"]
    assert cache.distrusted == (
        DistrustedRemoval(Lacking("Service", "a-web"), "a", frozenset({"x", "y"}), 7.0),
    )
    # A changed slice reaches the state and does not end the distrust.
    cache.put(endpoints("x-1", "10.0.0.2"))
    assert state.names("service") == ["x", "y"]


def test_relist_is_trusted_when_it_lacks_endpoints_too() -> None:
    cache, state = fed()
    cache.remove_services([X, Y], 7.0, by_relist=True)
    cache.put(endpoints("x-1"))
    assert (state.names("service"), cache.distrusted) == ([], ())
    cache, state = fed()
    cache.remove_services([X, Y], 7.0, by_relist=True)
    cache.remove_slices([("a-web", "x-1")])
    assert (state.names("service"), cache.distrusted) == ([], ())


def test_relist_without_services_and_endpoints_is_trusted() -> None:
    cache, state = fed()
    cache.remove_slices([("a-web", "x-1"), ("a-web", "y-1")])
    cache.remove_services([X, Y], 7.0, by_relist=True)
    assert (state.names("service"), cache.distrusted) == ([], ())


def test_returning_service_confirms_the_other_removals() -> None:
    cache, state = fed()
    cache.remove_services([X, Y], 7.0, by_relist=True)
    cache.put(service("x"))
    assert (state.names("service"), cache.distrusted) == (["x"], ())


def test_distrust_ends_after_hold_seconds() -> None:
    cache, state = fed()
    assert not cache.next_expiry_at
    cache.remove_services([X, Y], 7.0, by_relist=True)
    assert cache.next_expiry_at == 7.0 + HOLD_S
    assert not cache.trust_expired(6.0 + HOLD_S)
    assert cache.trust_expired(7.0 + HOLD_S) == (
        DistrustedRemoval(Lacking("Service", "a-web"), "a", frozenset({"x", "y"}), 7.0),
    )
    assert not state.names("service")
    assert not cache.distrusted
    assert cache.trust_expired(1e9) == ()


def test_removed_namespace_stays_while_it_has_services() -> None:
    cache, state = fed()
    cache.remove_namespaces(["a-web", "unknown"], 1.0, by_relist=True)
    assert cache.tenants == {"a": {"a-web"}}
    assert [distrusted.lacking for distrusted in cache.distrusted] == [Lacking("Namespace", "a-web")]
    cache.remove_services([X], 2.0, by_relist=False)
    assert state.names("namespace") == ["a-web"]
    cache.remove_services([Y], 2.0, by_relist=False)
    assert (state.names("namespace"), cache.tenants, cache.distrusted) == ([], {}, ())


def test_returning_namespace_ends_its_distrust() -> None:
    cache, state = fed()
    cache.remove_namespaces(["a-web"], 1.0, by_relist=True)
    cache.put_namespace(namespace("a-web"))
    assert (state.names("namespace"), cache.distrusted) == (["a-web"], ())


def test_services_and_namespace_can_both_be_distrusted() -> None:
    cache, state = fed()
    cache.remove_namespaces(["a-web"], 1.0, by_relist=True)
    cache.remove_services([X, Y], 2.0, by_relist=True)
    assert {distrusted.lacking.kind for distrusted in cache.distrusted} == {"Namespace", "Service"}
    cache.remove_slices([("a-web", "x-1")])
    assert not cache.distrusted
    assert (state.names("namespace"), state.names("service")) == ([], [])


def test_namespace_may_change_its_tenant() -> None:
    cache, _ = fed()
    changes = cache.namespace_changes
    cache.put_namespace(namespace("a-web", "b"))
    assert cache.tenants == {"b": {"a-web"}}
    assert cache.namespace_changes > changes


def test_adopt_replaces_the_objects_of_a_namespace() -> None:
    cache, state = fed()
    x, z, one = service("x"), service("z"), endpoints("x-1", "10.0.0.9")
    cache.adopt("a-web", {"x": x, "z": z}, {"x-1": one}, 5.0)
    assert (state.names("service"), state.names("slice")) == (["x", "z"], ["x-1"])
    assert (list(cache.services("a-web")), list(cache.slices("a-web"))) == ([x, z], [one])
    # Its list, too, has to be trusted.
    cache.adopt("a-web", {}, {"x-1": one}, 6.0)
    assert state.names("service") == ["x", "z"]
    assert [distrusted.since for distrusted in cache.distrusted] == [6.0]


def test_forget_drops_objects_and_distrust() -> None:
    cache, state = fed()
    cache.remove_services([X, Y], 7.0, by_relist=True)
    cache.forget("a-web")
    assert (state.names("service"), state.names("slice")) == ([], [])
    assert (cache.distrusted, cache.tenants) == ((), {"a": {"a-web"}})
    cache, state = fed()
    cache.remove_namespaces(["a-web"], 7.0, by_relist=True)
    cache.forget("a-web")
    assert (cache.distrusted, cache.tenants, state.objects) == ((), {}, {})


def test_has_only_endpoints_is_about_one_tenant() -> None:
    cache, _ = fed()
    assert not cache.has_only_endpoints("a")
    cache.remove_services([X, Y], 0.0, by_relist=False)
    assert cache.has_only_endpoints("a")
    cache.remove_slices([("a-web", "x-1")])
    assert not cache.has_only_endpoints("a")
    assert not cache.has_only_endpoints("b")


def test_saved_services_missing_in_first_list_are_distrusted() -> None:
    cache, state = fed()
    cache.remove_services([X, Y], 0.0, by_relist=False)
    cache.distrust_absent([service("x"), service("y")], 3.0)
    assert state.names("service") == ["x", "y"]
    assert cache.distrusted == (
        DistrustedRemoval(Lacking("Service", "a-web"), "a", frozenset({"x", "y"}), 3.0),
    )
    cache.put(service("z"))
    assert state.names("service") == ["z"]
    # A plausible list is applied.
    cache.distrust_absent([service("x")], 4.0)
    cache.distrust_absent([service("x", "a-empty")], 4.0)
    assert state.names("service") == ["z"]


def test_undecodable_service_loses_rules_but_still_exists() -> None:
    state = RecordingState()
    cache = ObjectCache(state, HOLD_S)
    cache.put_namespace(namespace("a-web"))
    cache.put(service("web"))
    cache.put(endpoints("web-1", "10.0.0.1"))
    # A relist has only the undecodable Service: its rules end, and the relist is applied.
    cache.mark_undecodable(("a-web", "web"))
    cache.remove_services([("a-web", "web")], 0.0, by_relist=True)
    assert state.names("service") == []
    assert cache.distrusted == ()
    assert not cache.has_only_endpoints("a")
    # Saved Services of such a namespace are not kept.
    cache.distrust_absent([service("web")], 0.0)
    assert state.names("service") == []
    cache.clear_undecodable(("a-web", "web"))
    assert cache.has_only_endpoints("a")
    cache.put(service("web"))
    assert state.names("service") == ["web"]


def test_relist_with_an_undecodable_service_is_trusted() -> None:
    state = RecordingState()
    cache = ObjectCache(state, HOLD_S)
    cache.put_namespace(namespace("a-web"))
    for name in ("web", "shop"):
        cache.put(service(name))
    cache.put(endpoints("web-1", "10.0.0.1"))
    cache.remove_services([("a-web", "web"), ("a-web", "shop")], 0.0, by_relist=True)
    assert [distrusted.names for distrusted in cache.distrusted] == [frozenset({"web", "shop"})]
    cache.mark_undecodable(("a-web", "web"))
    assert cache.distrusted == ()
    assert state.names("service") == []


def test_adopt_takes_undecodable_services() -> None:
    state = RecordingState()
    cache = ObjectCache(state, HOLD_S)
    cache.put_namespace(namespace("a-web"))
    cache.put(service("web"))
    slices = {"web-1": endpoints("web-1", "10.0.0.1")}
    cache.adopt("a-web", {}, slices, 0.0, undecodable=("web",))
    assert (state.names("service"), cache.distrusted) == ([], ())
    cache.adopt("a-web", {}, slices, 0.0)
    assert cache.has_only_endpoints("a")
