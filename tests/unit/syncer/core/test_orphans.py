# SPDX-License-Identifier: Apache-2.0
"""Which super namespaces are deleted, as upstream's `namespace patrol` and what is held instead."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.core.orphans import (
    ClusterRef,
    KnownClusters,
    Orphans,
    OwnedNamespace,
    evaluate,
    is_gone,
    owned_namespace,
)
from tenancy.removals import Distrust
from tests.steps import finish, most_in_a_step

KEY = "tenants-0a1b2c-acme"


def namespace(name: str, **annotations: str) -> dict[str, Any]:
    """`vcuid` stands for `tenancy.x-k8s.io/vcuid`, and so on."""
    noted = {f"tenancy.x-k8s.io/{key}": value for key, value in annotations.items()}
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "7", "annotations": noted}}


VC = {"vcnamespace": "tenants", "vcname": "acme", "vcuid": "u1"}
WEB = {"cluster": KEY, "namespace": "web", "uid": "t1"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (namespace(f"{KEY}-web", **VC, **WEB), KEY),
        (namespace(KEY, **VC, vcrootns="true"), KEY),
        (namespace("kube-system"), None),
        (namespace(f"{KEY}-web", **WEB), None),  # a directory's tenant
        (namespace(f"{KEY}-web", **WEB, vcname="acme", vcnamespace="tenants"), None),
        (namespace("other", **VC, **WEB), None),  # the annotations were copied
        (namespace(f"{KEY}-web", **VC), None),  # of no tenant's namespace
        (namespace(f"{KEY}-web", **VC, **WEB, vcrootns="true"), None),  # both is neither
    ],
)
def test_namespaces_of_virtual_clusters_are_recognised(value: Any, expected: str | None) -> None:
    found = owned_namespace(value)
    assert (None if found is None else found.key) == expected
    if found is not None:
        name = value["metadata"]["name"]
        cluster = ClusterRef("tenants", "acme", "u1")
        assert found == OwnedNamespace(name, f"uid-of-{name}", "7", KEY, cluster)


def test_a_namespace_that_is_deleted_is_no_orphan() -> None:
    value = namespace(f"{KEY}-web", **VC, **WEB)
    value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert owned_namespace(value) is None


@pytest.mark.parametrize(
    ("root", "retained", "manager", "is_kept"),
    [
        (True, "true", "vc-operator", True),
        (True, "false", "vc-operator", False),
        (True, "", "vc-operator", False),
        (True, "true", "", False),
        (True, "true", "somebody", False),
        (False, "true", "vc-operator", False),  # only a root namespace has volumes of a store
    ],
)
def test_a_namespace_with_kept_volumes_is_no_orphan(
    root: bool, retained: str, manager: str, is_kept: bool
) -> None:
    value = namespace(KEY, **VC, vcrootns="true") if root else namespace(f"{KEY}-web", **VC, **WEB)
    if retained:
        value["metadata"]["annotations"]["vcnode.io/retained"] = retained
    if manager:
        value["metadata"]["labels"] = {"vcnode.io/managed-by": manager}
    assert (owned_namespace(value) is None) is is_kept


def owned(*tenants: str) -> list[OwnedNamespace]:
    """A namespace `<tenant>-web` for each; the UID of the VirtualCluster `t/<tenant>` is `u-<tenant>`."""
    return [
        OwnedNamespace(f"{each}-web", "", "", each, ClusterRef("t", each, f"u-{each}")) for each in tenants
    ]


def known(*tenants: str, undecodable: tuple[str, ...] = (), **others: str) -> KnownClusters:
    uids = {("t", each): f"u-{each}" for each in tenants} | {("t", each): uid for each, uid in others.items()}
    return KnownClusters(uids, frozenset(("t", each) for each in undecodable))


@pytest.mark.parametrize(
    ("clusters", "confirmed", "removable", "held"),
    [
        # All are there, whether they run or not.
        (known("a", "b", "c", "d"), (), "", ""),
        # A deletion that was reported.
        (known("a", "b", "c"), ("d",), "d", ""),
        # One that a list lacks, of four: as upstream.
        (known("a", "b", "c"), (), "d", ""),
        # Another UID under the same name: restored, or made again. A deletion that was reported is one.
        (known("a", "b", "c", d="u-new"), (), "", "d"),
        (known("a", "b", "c", d="u-new"), ("d",), "d", ""),
        (known("a", "b", d="u-new"), (), "c", "d"),
        # It exists, though it cannot be decoded.
        (known("a", "b", "c", undecodable=("d",)), (), "", ""),
        (known("a", "b", "c", undecodable=("d",)), ("d",), "", ""),
        # Reported as deleted and there: a UID is never used again, so the report was wrong.
        (known("a", "b", "c", "d"), ("d",), "", ""),
        # An empty list, and an old backup.
        (known(), (), "", "abcd"),
        (known("a"), (), "", "bcd"),
        # A backup that gave all other UIDs.
        (known(a="x", b="x", c="x", d="x"), (), "", "abcd"),
        # What was reported goes, whatever else a list lacks.
        (known(), ("d",), "d", "abc"),
        (known(), tuple("abcd"), "abcd", ""),
    ],
)
def test_which_namespaces_go(
    clusters: KnownClusters, confirmed: tuple[str, ...], removable: str, held: str
) -> None:
    uids = [f"u-{each}" for each in confirmed]
    found = finish(
        evaluate(owned(*"abcd"), clusters, uids, None, 1.0, is_first_patrol=False, needs_confirmation=False)
    )
    assert ["".join(each.key for each in part) for part in (found.removable, found.held)] == [removable, held]


def test_the_first_patrol_deletes_nothing() -> None:
    found = finish(
        evaluate(
            owned("a", "b"), known("a"), ["u-b"], None, 1.0, is_first_patrol=True, needs_confirmation=False
        )
    )
    assert (found.removable, [each.key for each in found.held]) == ((), ["b"])


def test_other_meta_clusters_keep_their_namespaces() -> None:
    found = finish(
        evaluate(
            owned(*"abcd"),
            known("a", "b"),
            ["u-c"],
            None,
            1.0,
            is_first_patrol=False,
            needs_confirmation=True,
        )
    )
    assert [[each.key for each in part] for part in (found.removable, found.held)] == [["c"], ["d"]]


def test_new_tenants_do_not_make_a_loss_plausible() -> None:
    before = finish(
        evaluate(owned(*"ab"), known(), (), None, 1.0, is_first_patrol=False, needs_confirmation=False)
    )
    assert before.distrust == Distrust(1.0, frozenset({"u-a", "u-b"}))
    found = finish(
        evaluate(
            owned(*"abcdef"),
            known(*"cdef"),
            (),
            before.distrust,
            2.0,
            is_first_patrol=False,
            needs_confirmation=False,
        )
    )
    assert [each.key for each in found.held] == ["a", "b"]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 12_000), st.integers(1, 50), st.booleans())
def test_no_step_judges_all_namespaces(count: int, clusters: int, are_there: bool) -> None:
    """Whatever one tenant has, and however many of them are orphans."""
    names = [str(number % clusters) for number in range(count)]

    def work() -> Generator[None, None, Orphans]:
        there = known(*(str(number) for number in range(clusters))) if are_there else known()
        return evaluate(
            found,
            there,
            [f"u-{each}" for each in names],
            None,
            1.0,
            is_first_patrol=False,
            needs_confirmation=False,
        )

    found = CountedList(owned(*names))
    assert most_in_a_step(work(), lambda: found.taken) <= 2_000
    assert found.taken == 2 * count


class CountedList(list[OwnedNamespace]):
    """A list that counts what was taken out of it."""

    taken = 0

    def __iter__(self) -> Iterator[OwnedNamespace]:
        for each in super().__iter__():
            self.taken += 1
            yield each


TENANTS = st.frozensets(st.sampled_from("abcdefgh"))


@given(TENANTS, TENANTS, TENANTS, st.booleans(), st.booleans())
def test_a_tenant_that_exists_keeps_its_namespaces(
    have: frozenset[str], exist: frozenset[str], reported: frozenset[str], is_first: bool, needs: bool
) -> None:
    found = finish(
        evaluate(
            owned(*sorted(have)),
            known(*exist),
            [f"u-{each}" for each in reported],
            None,
            1.0,
            is_first_patrol=is_first,
            needs_confirmation=needs,
        )
    )
    removable = {each.key for each in found.removable}
    assert not removable & exist
    assert removable | {each.key for each in found.held} == have - exist
    if not exist:
        assert removable <= reported


@given(TENANTS, TENANTS, TENANTS)
def test_a_name_that_another_has_keeps_what_was(
    have: frozenset[str], again: frozenset[str], reported: frozenset[str]
) -> None:
    """After a restore of VirtualClusters each has another UID. It is not given what the first one had."""
    found = finish(
        evaluate(
            owned(*sorted(have)),
            KnownClusters({("t", each): f"new-{each}" for each in again}),
            [f"u-{each}" for each in reported],
            None,
            1.0,
            is_first_patrol=False,
            needs_confirmation=False,
        )
    )
    former = {each.key for each in found.former}
    assert former == have & again - reported
    assert former <= {each.key for each in found.held}
    assert not former & {each.key for each in found.removable}


@pytest.mark.parametrize("is_confirmed", [False, True])
@pytest.mark.parametrize(
    ("code", "message", "uid", "expected"),
    [
        (200, "", "u1", False),
        (200, "", "u2", True),
        (200, "", "", False),
        (404, 'virtualclusters.tenancy.x-k8s.io "acme" not found', None, True),
        (404, "the server could not find the requested resource", None, False),
        (403, 'virtualclusters.tenancy.x-k8s.io "acme" is forbidden', None, False),
        (503, "", None, False),
    ],
)
def test_the_last_look_before_a_deletion(
    code: int, message: str, uid: str | None, expected: bool, is_confirmed: bool
) -> None:
    found = None if uid is None else {"metadata": {"uid": uid}}
    cluster = ClusterRef("tenants", "acme", "u1")
    # Another one of its name may be the same one restored, unless its deletion was seen.
    expected = expected and (is_confirmed or uid is None)
    assert is_gone(cluster, code, message, found, is_confirmed=is_confirmed) is expected
