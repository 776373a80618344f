# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.resources import SERVICES
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import Patch, Side
from syncer.work.void_patches import VoidPatches, digest_of, state_of

ITEM = ("Service", "web", "a")


def digest(body: Object, generation: int | None = 1, version: str = "7", subresource: str = "") -> bytes:
    patch = Patch(Side.SUPER, SyncedKind(SERVICES, "Service"), "w", "a", "u", body, subresource)
    state = state_of({"metadata": {"generation": generation, "resourceVersion": version}})
    return digest_of("red", ITEM, patch, repr(body).encode(), state)


@pytest.mark.parametrize(
    ("body", "subresource", "is_same"),
    [
        pytest.param({"spec": {"a": None}}, "", True, id="other writers of the status change nothing"),
        pytest.param({"metadata": {"labels": {"a": None}}}, "", False, id="labels have no generation"),
        pytest.param({"status": {"a": None}}, "status", False, id="nor has a status"),
    ],
)
def test_what_a_generation_counts(body: Object, subresource: str, is_same: bool) -> None:
    one = digest(body, subresource=subresource)
    assert (digest(body, version="8", subresource=subresource) == one) is is_same
    assert digest(body, generation=2, version="8", subresource=subresource) != one


def test_without_a_generation_the_version_counts() -> None:
    body = {"data": {"a": None}}
    assert digest(body, generation=None) != digest(body, generation=None, version="8")


def test_the_oldest_is_forgotten() -> None:
    known = VoidPatches(max_patches=2)
    for each in (b"a", b"b", b"c"):
        known.note(each)
    assert [known.is_known(each) for each in (b"a", b"b", b"c")] == [False, True, True]
