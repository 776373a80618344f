# SPDX-License-Identifier: Apache-2.0
"""While no SyncPolicy is known, no plan makes, changes, refuses or deletes anything by the built-in one."""

import pytest

from syncer.core.pair import Pair
from syncer.core.plan import Create, Delete, Patch, Plan, Side
from syncer.kinds import unknown_policy
from syncer.kinds.port import KindSync
from syncer.policy.sync_policy import DEFAULT, PolicyUnusable
from tests.unit.syncer.kinds.plan_world import SYNCS, SizedView, key_of, pair

WAIT = unknown_policy.wait_for(PolicyUnusable("SyncPolicies are not synced"))


def _plan(sync: KindSync, situation: str) -> Plan:
    """The plan of what a policy that allows all let down, by `situation`."""
    objects = pair(sync, "changed" if situation == "deleted" else situation, {})
    if situation == "deleted":
        objects = Pair(None, objects.super)
    view = SizedView({}, policy=DEFAULT, policy_wait=WAIT)
    return unknown_policy.hold(sync.plan(key_of(sync), objects, view), sync, WAIT)


@pytest.mark.parametrize("situation", ["created", "equal", "changed"])
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_what_is_there_stays_as_it_is(sync: KindSync, situation: str) -> None:
    down = _plan(sync, situation).down
    assert not down.refusals
    assert not down.changes
    writes = [each for each in down.actions if isinstance(each, Create | Delete | Patch)]
    # What Endpoints and slices lose they lose by the tenant's object alone.
    allowed = _only_loses if not sync.holds_changes else _is_status
    assert [each for each in writes if each.side is Side.SUPER and not allowed(each)] == []
    assert down.wait in (None, WAIT)


@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_what_the_tenant_has_not_any_more_goes(sync: KindSync) -> None:
    objects = Pair(None, pair(sync, "changed", {}).super)
    usual = sync.plan(key_of(sync), objects, SizedView({}))
    assert _plan(sync, "deleted").down.actions == usual.down.actions


def _is_status(action: Create | Delete | Patch) -> bool:
    return isinstance(action, Patch) and action.subresource == "status"


def _only_loses(action: Create | Delete | Patch) -> bool:
    return isinstance(action, Patch) and action.body in ({"endpoints": []}, {"subsets": []})
