# SPDX-License-Identifier: Apache-2.0
from syncer.core.plan import Side
from syncer.tenant.deletions import Deletions, SyncKey

ITEM: SyncKey = ("ConfigMap", "web", "c")
OTHER: SyncKey = ("ConfigMap", "web", "d")


def _deletions() -> Deletions:
    return Deletions("red", lambda: "token", lambda: 0.0)


def test_each_side_has_suspicions_of_its_own() -> None:
    found = _deletions()
    found.suspect(Side.SUPER, ITEM)
    assert found.is_suspected(Side.SUPER, ITEM)
    assert not found.is_suspected(Side.TENANT, ITEM)
    found.note_confirmed(Side.TENANT, ITEM)
    assert found.is_suspected(Side.SUPER, ITEM)
    found.note_confirmed(Side.SUPER, ITEM)
    assert not found.is_suspected(Side.SUPER, ITEM)


def test_what_is_proposed_waits_for_a_judgement_or_for_an_event() -> None:
    found = _deletions()
    assert found.may_delete(Side.SUPER, ITEM)
    for item in (ITEM, OTHER):
        found.propose(Side.SUPER, item)
    assert not found.may_delete(Side.SUPER, ITEM)
    found.note_confirmed(Side.SUPER, OTHER)
    assert found.unconfirmed(Side.SUPER) == {ITEM}
    assert found.judge(Side.SUPER, {"ConfigMap": 10}, lambda _: {}, is_first_patrol=False)
    assert found.may_delete(Side.SUPER, ITEM)
    found.note_deleted(Side.SUPER, ITEM)
    assert (found.unconfirmed(Side.SUPER), found.holds()) == (frozenset(), {})
