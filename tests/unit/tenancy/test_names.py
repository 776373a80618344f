# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.names import (
    Collision,
    Refused,
    check_key,
    cluster_key,
    collisions,
    is_dns_label,
    is_pod_name,
    is_uid,
    super_namespace,
)

UID = "7374a172-c35d-45b1-9c8e-bf5c5b614937"

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("namespace", "name", "uid", "cluster_namespace", "key"),
    [
        ("ns", "name", "d64ea0c0-91f8-46f5-8643-c0cab32ab0cd", "", "ns-fd1b34-name"),
        ("tenant-1", "test", UID, "", "tenant-1-70b001-test"),
        # status.clusterNamespace is the key, whatever the object's name.
        ("tenant-1", "test", UID, "tenant-1", "tenant-1"),
        ("a", "v1.2", UID, "chosen", "chosen"),
        # The longest namespace and name that still fit: 55 characters together.
        ("n" * 27, "m" * 28, UID, "", "n" * 27 + "-70b001-" + "m" * 28),
    ],
)
def test_a_cluster_key_is_computed_as_upstream(
    namespace: str, name: str, uid: str, cluster_namespace: str, key: str
) -> None:
    assert cluster_key(namespace, name, uid, cluster_namespace) == key


@pytest.mark.parametrize(
    ("namespace", "name", "uid", "cluster_namespace"),
    [
        ("n" * 28, "m" * 28, UID, ""),
        ("a", "v1.2", UID, ""),
        ("a", "B", UID, ""),
        ("a", "b", "", ""),
        ("", "b", UID, ""),
        ("a", "", UID, ""),
        ("a", "b", UID, "kube-system"),
        ("a", "b", UID, "default"),
        ("a", "b", UID, "a/../b"),
        ("a", "b", UID, "a\n"),
        ("a", "b", UID, "-a"),
    ],
)
def test_an_invalid_or_reserved_key_is_refused(
    namespace: str, name: str, uid: str, cluster_namespace: str
) -> None:
    assert isinstance(cluster_key(namespace, name, uid, cluster_namespace), Refused)


@pytest.mark.parametrize(
    ("key", "namespace", "expected"),
    [
        ("tenant-1-70b001-test", "default", "tenant-1-70b001-test-default"),
        ("tenant-1-70b001-test", "a" * 63, "tenant-1-70b001-test-" + "a" * 36 + "-ebf56"),
        # 63 characters fit as they are, 64 do not.
        ("k" * 31, "n" * 31, "k" * 31 + "-" + "n" * 31),
        (
            "k" * 31,
            "n" * 32,
            "k" * 31 + "-" + "n" * 25 + "-" + hashlib.sha256(b"k" * 31 + b"-" + b"n" * 32).hexdigest()[:5],
        ),
        # The cut may fall behind a hyphen: still a legal name.
        (
            "k" * 56,
            "n" * 10,
            "k" * 56 + "--" + hashlib.sha256(b"k" * 56 + b"-" + b"n" * 10).hexdigest()[:5],
        ),
        # A namespace that already looks translated is treated as any other.
        ("ten-a", "ten-a-web", "ten-a-ten-a-web"),
        ("ten-a", "kube-system", "ten-a-kube-system"),
    ],
)
def test_a_super_namespace_is_computed_as_upstream(key: str, namespace: str, expected: str) -> None:
    assert super_namespace(key, namespace) == expected


@pytest.mark.parametrize(
    ("key", "namespace", "reason"),
    [
        ("kube", "system", "kube-system is a namespace of the super cluster itself"),
        ("kube", "node-lease", "kube-node-lease is a namespace of the super cluster itself"),
        ("kube-public", "a", "cluster key kube-public is a namespace of the super cluster itself"),
        ("a", "", "namespace '' is not a DNS label"),
        ("a", "B", "namespace 'B' is not a DNS label"),
        ("a", "b.c", "namespace 'b.c' is not a DNS label"),
        ("", "b", "cluster key '' is not a DNS label of at most 63 characters"),
        ("k" * 64, "b", f"cluster key {'k' * 64!r} is not a DNS label of at most 63 characters"),
    ],
)
def test_a_reserved_super_namespace_is_refused(key: str, namespace: str, reason: str) -> None:
    assert super_namespace(key, namespace) == Refused(reason)


@given(labels, labels)
def test_a_super_namespace_is_valid_or_refused(key: str, namespace: str) -> None:
    found = super_namespace(key, namespace)
    assert isinstance(found, Refused) or is_dns_label(found)


def test_joined_names_collide() -> None:
    assert collisions([("a", "b-c"), ("a-b", "c"), ("a-b", "d"), ("x", "c")]) == (
        Collision("a-b-c", (("a", "b-c"), ("a-b", "c"))),
    )


def test_a_namespace_collides_with_a_root_namespace() -> None:
    found = collisions([("a", "b"), ("a-b", "x")])
    assert found == (Collision("a-b", (("a", "b"), ("a-b", ""))),)
    assert found[0].refusal == Refused("super namespace a-b would have more than one owner")


def test_hashed_names_collide() -> None:
    """Two namespaces of one tenant whose 20 bits of hash are equal, found by search."""
    key = "k" * 57
    seen: dict[str, str] = {}
    for number in range(1 << 16):
        namespace = f"n{number}"
        target = super_namespace(key, namespace)
        assert isinstance(target, str)
        if target in seen:
            break
        seen[target] = namespace
    else:
        pytest.fail("no two of 65536 names share 20 bits")
    assert collisions([(key, seen[target]), (key, namespace), (key, "other")]) == (
        Collision(target, tuple(sorted([(key, seen[target]), (key, namespace)]))),
    )


def test_one_owner_listed_twice_is_not_a_collision() -> None:
    assert collisions([("a", "b"), ("a", "b"), ("kube", "system"), ("A", "b")]) == ()


@given(st.lists(st.tuples(labels, labels), max_size=8))
def test_owners_without_a_collision_share_no_namespace(pairs: list[tuple[str, str]]) -> None:
    contested = {claim for collision in collisions(pairs) for claim in collision.claims}
    sole = {pair for pair in pairs if pair not in contested}
    targets = [target for pair in sole if isinstance(target := super_namespace(*pair), str)]
    assert len(targets) == len(set(targets))
    assert not {check_key(key) is None and key for key, _ in pairs} & set(targets)


@pytest.mark.parametrize("text", ["a", "0", "a-b", "a--b", "1.2", "shop-7d9f.v2"])
def test_valid_pod_names(text: str) -> None:
    assert is_pod_name(text)


@pytest.mark.parametrize(
    "text", ["", "A", "a_b", "-a", "a-", "a.", ".a", "a..b", "a/b", "a\n", "a b", "é", "٣", "a" * 254]
)
def test_invalid_pod_names(text: str) -> None:
    assert not is_pod_name(text)
    assert not is_dns_label(text)


@pytest.mark.parametrize("text", [UID, "a-0001", "0f3c9" * 6, "x"])
def test_valid_uids(text: str) -> None:
    assert is_uid(text)


@pytest.mark.parametrize("text", ["", "a/b", "a b", "a\n", "-", "é", "a" * 129, '"'])
def test_invalid_uids(text: str) -> None:
    assert not is_uid(text)
