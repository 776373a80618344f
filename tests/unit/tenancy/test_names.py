# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.names import (
    Refused,
    cluster_key,
    is_dns_label,
    is_pod_name,
    is_reserved_name,
    is_uid,
    overlapping,
    overlaps,
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


def test_a_key_that_continues_another_overlaps_it() -> None:
    """Namespace `blue-x` of `acme` and `x` of `acme-blue` would be one."""
    assert super_namespace("acme", "blue-x") == super_namespace("acme-blue", "x")
    assert overlapping(["acme", "acme-blue", "acmes", "rival", "acme-blue-x"]) == {"acme-blue", "acme-blue-x"}
    assert overlapping(["acme", "acme"]) == frozenset()


def test_keys_that_are_cut_alike_overlap() -> None:
    """Of their super namespaces 5 hex digits differ: a tenant finds a name that is another's."""
    one, other = "k" * 57 + "-a", "k" * 57 + "-b"
    assert overlaps(one, other)
    assert not overlaps("k" * 56 + "a", "k" * 56 + "b")
    assert overlapping([other, one, "k" * 56 + "a"]) == {other}


# Of few texts, so that many are the beginning of others.
_KEYS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map("-".join)


@given(st.sets(_KEYS, max_size=6))
def test_what_overlaps_nothing_is_left(keys: set[str]) -> None:
    left = keys - overlapping(keys)
    assert not any(overlaps(one, other) for one in left for other in left if one != other)
    assert all(any(key != each and overlaps(key, each) for each in keys) for key in overlapping(keys))


@given(st.lists(st.tuples(_KEYS, _KEYS), max_size=8))
def test_keys_that_do_not_overlap_share_no_namespace(pairs: list[tuple[str, str]]) -> None:
    """The root namespace of each key takes part."""
    refused = overlapping(key for key, _ in pairs)
    owners: dict[str, set[str]] = {}
    for key, namespace in pairs:
        if key not in refused:
            owners.setdefault(key, set()).add(key)
            target = super_namespace(key, namespace)
            assert isinstance(target, str)
            owners.setdefault(target, set()).add(key)
    assert all(len(each) == 1 for each in owners.values())


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


@given(st.sets(_KEYS, max_size=6), st.lists(_KEYS, max_size=6))
def test_a_super_namespace_is_kept_for_one_tenant(found: set[str], namespaces: list[str]) -> None:
    """Of all that could have it by the join of key and namespace at most one may."""
    makers: dict[str, set[str]] = {}
    for key in found:
        for namespace in namespaces:
            name = super_namespace(key, namespace)
            if isinstance(name, str):
                makers.setdefault(name, set()).add(key)
    for name, claims in makers.items():
        free = {key for key in claims if not is_reserved_name(name, key, found)}
        assert len(free) <= 1
        assert free or any(name == key or name.startswith(f"{key}-") for key in found - claims)
