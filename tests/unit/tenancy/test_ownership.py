# SPDX-License-Identifier: Apache-2.0
import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.names import Refused
from tenancy.ownership import (
    FOREIGN,
    MAX_IMAGES_CHARS,
    UNKNOWN,
    ContainerPolicy,
    Owned,
    OwnerIndex,
    known_images,
    owned_pod,
)

CLUSTER, NAMESPACE, UID = (f"tenancy.x-k8s.io/{word}" for word in ("cluster", "namespace", "uid"))
ANNOTATIONS = {CLUSTER: "ten-a", NAMESPACE: "web", UID: "a-0001", "other": "x"}
NAMES = ["app", "setup", "dbg", "mesh-proxy"]
SHOP = Owned(
    "ten-a", "web", "shop", "a-0001", "ten-a-web", "shop", "s-1001", frozenset({"app", "setup", "dbg"})
)
INJECTING = ContainerPolicy(frozenset({"mesh-proxy"}))
TRUSTING = ContainerPolicy(frozenset({"mesh-proxy"}), trusts_annotation=True)


def shop(
    annotations: Mapping[str, str], policy: ContainerPolicy = INJECTING, *, names: list[str] = NAMES
) -> Owned | Refused | None:
    return owned_pod("ten-a-web", "shop", "s-1001", annotations, names, policy)


def test_a_pod_with_all_annotations_is_owned() -> None:
    assert shop(ANNOTATIONS) == SHOP


@pytest.mark.parametrize(
    ("policy", "listed", "containers"),
    [
        (ContainerPolicy(), None, {"app", "setup", "dbg", "mesh-proxy"}),
        (INJECTING, None, {"app", "setup", "dbg"}),
        # Not trusted: a tenant may have written it.
        (INJECTING, "app,mesh-proxy", {"app", "setup", "dbg"}),
        (INJECTING, "not!valid", {"app", "setup", "dbg"}),
        (TRUSTING, None, {"app", "setup", "dbg"}),
        (TRUSTING, "app", {"app"}),
        (TRUSTING, " app , setup ", {"app", "setup"}),
        # A tenant's own container may have the name of one that is injected elsewhere.
        (TRUSTING, "app,mesh-proxy", {"app", "mesh-proxy"}),
        (TRUSTING, "app,gone", {"app"}),
        (TRUSTING, "", set()),
    ],
)
def test_containers_by_policy_and_annotation(
    policy: ContainerPolicy, listed: str | None, containers: set[str]
) -> None:
    annotations = ANNOTATIONS if listed is None else ANNOTATIONS | {"vcnode.io/containers": listed}
    assert shop(annotations, policy) == dataclasses.replace(SHOP, containers=frozenset(containers))


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"other": "x"},
        {"tenancy.x-k8s.io/vcname": "a", "tenancy.x-k8s.io/cluster2": "ten-a", "vcnode.io/containers": "app"},
    ],
)
def test_a_pod_without_annotations_is_the_super_clusters(annotations: Mapping[str, str]) -> None:
    assert shop(annotations) is None


HALF = Refused("not all of its ownership annotations are set")
BAD_KEY = "cluster key {!r} is not a DNS label of at most 63 characters"


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({CLUSTER: None}, HALF),
        ({NAMESPACE: None}, HALF),
        ({UID: None}, HALF),
        ({CLUSTER: None, NAMESPACE: None}, HALF),
        ({CLUSTER: ""}, HALF),
        ({CLUSTER: "", NAMESPACE: "", UID: ""}, HALF),
        ({CLUSTER: "Ten-A"}, Refused(BAD_KEY.format("Ten-A"))),
        ({CLUSTER: "a/b"}, Refused(BAD_KEY.format("a/b"))),
        (
            {CLUSTER: "kube-system"},
            Refused("cluster key kube-system is a namespace of the super cluster itself"),
        ),
        ({NAMESPACE: "web.x"}, Refused("its namespace or uid annotation is not valid")),
        ({UID: "a\n"}, Refused("its namespace or uid annotation is not valid")),
    ],
)
def test_incomplete_or_invalid_annotations_are_refused(
    changed: Mapping[str, str | None], refused: Refused
) -> None:
    annotations = {key: value for key, value in {**ANNOTATIONS, **changed}.items() if value is not None}
    assert shop(annotations) == refused


def test_invalid_names_of_the_super_pod_are_refused() -> None:
    refused = Refused("its own namespace, name or uid is not valid")
    for identity in [("a/b", "shop", "u"), ("ns", "Shop", "u"), ("ns", "shop", ""), ("", "shop", "u")]:
        assert owned_pod(*identity, ANNOTATIONS, ["app"], INJECTING) == refused
    assert shop(ANNOTATIONS, names=["app", "../x"]) == Refused("the name of a container is not valid")
    assert shop(ANNOTATIONS | {"vcnode.io/containers": "a b"}, TRUSTING) == Refused(
        "its containers annotation is not valid"
    )


def test_look_ups_are_by_tenant_namespace_and_name() -> None:
    vault = Owned("ten-a-b", "c", "vault", "ab-1", "ten-a-b-c", "vault", "s-3001", frozenset({"app"}))
    index = OwnerIndex([SHOP, vault])
    assert index.lookup("ten-a", "web", "shop") is SHOP
    assert index.lookup("ten-a-b", "c", "vault") is vault
    # The join of ten-a and b-c is the join of ten-a-b and c.
    assert index.lookup("ten-a", "b-c", "vault") is FOREIGN
    assert index.lookup("ten-a", "ten-a-web", "shop") is FOREIGN
    assert index.lookup("ten-a", "web", "none") is FOREIGN
    assert index.lookup("ten", "a-web", "shop") is FOREIGN
    assert index.lookup("none", "web", "shop") is FOREIGN
    assert index.pods_of("ten-a") == (SHOP,)
    assert index.pods_of("none") == ()
    assert (list(index), len(index), index.ambiguous) == ([SHOP, vault], 2, ())


def test_before_the_sync_every_look_up_is_unknown() -> None:
    index = OwnerIndex.unsynced()
    assert not index.is_synced
    assert index.lookup("ten-a", "web", "shop") is UNKNOWN
    assert OwnerIndex([SHOP], is_synced=False).lookup("ten-a", "web", "shop") is UNKNOWN
    assert OwnerIndex([]).lookup("ten-a", "web", "shop") is FOREIGN


def test_pods_with_one_claim_are_ambiguous() -> None:
    again = dataclasses.replace(SHOP, super_namespace="elsewhere", super_uid="s-2")
    other = dataclasses.replace(SHOP, name="other", super_name="other")
    index = OwnerIndex([SHOP, other, again])
    assert index.lookup("ten-a", "web", "shop") is FOREIGN
    assert (index.ambiguous, list(index)) == ((SHOP, again), [other])


def test_tenants_pods_of_one_super_pod_are_ambiguous() -> None:
    stolen = dataclasses.replace(SHOP, tenant="ten-b", super_uid="s-2")
    index = OwnerIndex([SHOP, stolen])
    assert index.lookup("ten-a", "web", "shop") is FOREIGN
    assert index.lookup("ten-b", "web", "shop") is FOREIGN
    assert index.ambiguous == (SHOP, stolen)


# Few letters and hyphens, so that the names collide by prefix and by join as often as can be.
colliding = st.from_regex(r"[ab](-[ab]){0,3}", fullmatch=True)
pods = st.builds(
    lambda tenant, namespace, super_namespace, name, uid: Owned(
        tenant, namespace, name, uid, super_namespace, name, f"s-{uid}", frozenset({"app"})
    ),
    colliding,
    colliding,
    colliding,
    st.sampled_from(["p", "q"]),
    st.sampled_from(["1", "2"]),
)


@given(st.lists(pods, max_size=12), colliding, colliding, st.sampled_from(["p", "q"]))
def test_look_ups_follow_the_annotations_exactly(
    listed: list[Owned], tenant: str, namespace: str, name: str
) -> None:
    index = OwnerIndex(listed)
    supers = [(pod.super_namespace, pod.super_name) for pod in listed]
    claims = [(pod.tenant, pod.namespace, pod.name) for pod in listed]
    sole = [
        pod
        for pod, claim, super_name in zip(listed, claims, supers, strict=True)
        if claims.count(claim) == 1 and supers.count(super_name) == 1
    ]
    ownership = index.lookup(tenant, namespace, name)
    expected = [pod for pod in sole if (pod.tenant, pod.namespace, pod.name) == (tenant, namespace, name)]
    assert ownership == (expected[0] if expected else FOREIGN)
    for pod in sole:
        assert pod in index.pods_of(pod.tenant)
    assert all(pod.tenant == tenant for pod in index.pods_of(tenant))
    assert len(index) + len(index.ambiguous) == len(listed)


@given(
    st.dictionaries(
        st.sampled_from([CLUSTER, NAMESPACE, UID, "vcnode.io/containers"]), colliding | st.text(max_size=5)
    ),
    st.lists(colliding, max_size=4),
    st.builds(ContainerPolicy, st.frozensets(colliding, max_size=2), st.booleans()),
)
def test_arbitrary_pods_are_owned_or_refused(
    annotations: dict[str, str], containers: list[str], policy: ContainerPolicy
) -> None:
    found = owned_pod("ns", "pod", "u", annotations, containers, policy)
    if isinstance(found, Owned):
        written = tuple(annotations[key] for key in (CLUSTER, NAMESPACE, UID))
        assert (found.tenant, found.namespace, found.uid) == written
        assert found.containers <= set(containers)
    else:
        assert (found is None) == annotations.keys().isdisjoint([CLUSTER, NAMESPACE, UID])


def test_a_pod_with_a_problem_is_found_but_not_listed() -> None:
    huge = dataclasses.replace(
        SHOP, name="huge", super_name="huge", containers=frozenset(), problem="too large: x"
    )
    index = OwnerIndex([SHOP, huge])
    assert index.lookup(huge.tenant, huge.namespace, "huge") == huge
    assert index.pods_of(huge.tenant) == (SHOP,)
    assert set(index) == {SHOP, huge}


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "registry.example:5000/team/shop:1.2.3-rc_1",
        "[fd00::1]:5000/shop",
        "shop@sha256:" + "a" * 64,
    ],
)
def test_images_of_allowed_containers_are_known(image: str) -> None:
    found = owned_pod(
        *("ten-a-web", "shop", "s-1001"),
        ANNOTATIONS,
        NAMES,
        INJECTING,
        {"app": image, "mesh-proxy": "mesh:1"},
    )
    assert isinstance(found, Owned)
    assert found.images == (("app", image),)


@pytest.mark.parametrize("image", ["", " shop", 'shop",pod="other', "shop\n", "sh\u00f6p", "s" * 521, "{}"])
def test_a_text_that_is_no_image_is_not_kept(image: str) -> None:
    assert known_images({"app": image}, {"app"}) == ()


@given(st.integers(0, 2_000), st.integers(1, 520))
def test_images_of_a_pod_are_bounded_together(count: int, size: int) -> None:
    """A pod of one MiB may have a thousand containers, and each of the node's pods may."""
    containers = {f"c{number}": "i" * size for number in range(count)}
    kept = known_images(containers, containers)
    assert len(kept) == min(count, MAX_IMAGES_CHARS // size)
