# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.cache.watch_scope import (
    MAX_NAMESPACES,
    MAX_TENANTS,
    TenantNamespaces,
    WatchPlan,
    WatchScope,
    plan_watches,
)

A = TenantNamespaces(frozenset({"a-default", "a-web"}), "tenants", "a")
B = TenantNamespaces(frozenset({"b-default"}), "tenants", "b")


def big(name: str, count: int = MAX_NAMESPACES, vc_name: str | None = None) -> TenantNamespaces:
    names = frozenset(f"{name}-{number}" for number in range(count))
    return TenantNamespaces(names, "tenants", name if vc_name is None else vc_name)


def test_no_tenant_needs_no_watch() -> None:
    assert plan_watches({}) == WatchPlan(frozenset(), {})
    assert plan_watches({"a": TenantNamespaces(frozenset())}) == WatchPlan(frozenset(), {"a": ()})


def test_few_namespaces_have_a_scope_each() -> None:
    assert plan_watches({"a": A, "b": B}) == WatchPlan(
        frozenset({WatchScope("a-default"), WatchScope("a-web"), WatchScope("b-default")}),
        {"a": (WatchScope("a-default"), WatchScope("a-web")), "b": (WatchScope("b-default"),)},
    )


def test_many_namespaces_are_selected_by_labels() -> None:
    of_a, of_b = big("a"), B
    unlabelled = WatchScope(labels="!tenancy.x-k8s.io/vcname", included=of_a.namespaces | of_b.namespaces)
    labels = "tenancy.x-k8s.io/vcnamespace=tenants,tenancy.x-k8s.io/vcname="
    by_a = WatchScope(labels=labels + "a", included=of_a.namespaces)
    by_b = WatchScope(labels=labels + "b", included=of_b.namespaces)
    assert plan_watches({"a": of_a, "b": of_b}) == WatchPlan(
        frozenset({by_a, by_b, unlabelled}), {"a": (by_a, unlabelled), "b": (by_b, unlabelled)}
    )


def test_unlabelled_tenants_need_the_whole_cluster() -> None:
    for name in ("", "x" * 64, "a/b", "-a"):
        odd = big("a", vc_name=name)
        whole = WatchScope(included=odd.namespaces | B.namespaces)
        assert plan_watches({"a": odd, "b": B}) == WatchPlan(
            frozenset({whole}), {"a": (whole,), "b": (whole,)}
        )


def test_too_many_tenants_need_the_whole_cluster() -> None:
    by_tenant_namespaces = {f"t{i}": big(f"t{i}", 1) for i in range(MAX_TENANTS + 1)}
    assert len(plan_watches(by_tenant_namespaces).scopes) == 1
    del by_tenant_namespaces["t0"]
    assert len(plan_watches(by_tenant_namespaces).scopes) == MAX_TENANTS + 1


def test_scopes_change_back_only_well_below_the_limit() -> None:
    many = plan_watches({"a": big("a", MAX_NAMESPACES + 1)})
    assert not any(part.namespace for part in many.scopes)
    still = plan_watches({"a": big("a", MAX_NAMESPACES)}, many)
    assert not any(part.namespace for part in still.scopes)
    few = plan_watches({"a": big("a", 3)}, still)
    assert all(part.namespace for part in few.scopes)
    again = plan_watches({"a": big("a", MAX_NAMESPACES)}, few)
    assert all(part.namespace for part in again.scopes)


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=2),
        st.builds(
            lambda numbers, name: TenantNamespaces(frozenset(f"n{n}" for n in numbers), "v", name),
            st.sets(st.integers(0, 60), max_size=40),
            st.sampled_from(["", "x", "y"]),
        ),
    )
)
def test_all_namespaces_are_covered_within_the_watch_limit(
    by_tenant_namespaces: dict[str, TenantNamespaces],
) -> None:
    found = plan_watches(by_tenant_namespaces)
    assert len(found.scopes) <= max(MAX_NAMESPACES, MAX_TENANTS + 1)
    assert found.by_tenant.keys() == by_tenant_namespaces.keys()
    for tenant, tenant_namespaces in by_tenant_namespaces.items():
        for namespace in tenant_namespaces.namespaces:
            assert any(part.covers(namespace) for part in found.by_tenant[tenant])
    # Objects of other namespaces are dropped from cluster-wide watches.
    of_tenants = {
        namespace
        for tenant_namespaces in by_tenant_namespaces.values()
        for namespace in tenant_namespaces.namespaces
    }
    for part in found.scopes:
        assert part.namespace in of_tenants or (part.included is not None and part.included <= of_tenants)
