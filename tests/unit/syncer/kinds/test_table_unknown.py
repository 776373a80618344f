# SPDX-License-Identifier: Apache-2.0
"""Whatever a plan of any kind looks up may be there and not be readable: that is neither yes nor no."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Create, Delete, Patch, Plan, Side
from syncer.core.unknown import Unknown, hold
from syncer.kinds.port import KindSync
from tests.unit.syncer.kinds.plan_world import SYNCS, SizedView, key_of, pair


@dataclass(slots=True)
class _UnreadableView(SizedView):
    """Of what is looked up the objects at `unreadable` are there, and cannot be read."""

    unreadable: frozenset[tuple[Side, str, str]] = frozenset()
    looked: set[tuple[Side, str, str]] = field(default_factory=set)
    unknown: set[Unknown] = field(default_factory=set)

    def _unknown(self, side: Side, kind: str, namespace: str, name: str) -> Unknown | None:
        self.looked.add((side, kind, name))
        if (side, kind, name) not in self.unreadable:
            return None
        found = Unknown(side, kind, namespace, name, "of no shape")
        self.unknown.add(found)
        return found

    def in_tenant(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        unknown = self._unknown(Side.TENANT, kind, namespace, name)
        return unknown or SizedView.in_tenant(self, kind, namespace, name)

    def in_super(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        unknown = self._unknown(Side.SUPER, kind, namespace, name)
        return unknown or SizedView.in_super(self, kind, namespace, name)

    def vnode_labels(self, name: str) -> Mapping[str, str] | Unknown | None:
        return self._unknown(Side.TENANT, "Node", "", name) or SizedView.vnode_labels(self, name)

    def vnode_addresses(self, name: str) -> tuple[str, ...] | Unknown | None:
        unknown = (Side.TENANT, "Node", name) in self.unreadable
        found = Unknown(Side.TENANT, "Node", "", name, "of no shape")
        self.looked.add((Side.TENANT, "Node", name))
        return found if unknown else SizedView.vnode_addresses(self, name)

    def super_namespace(self, namespace: str) -> str | Unknown | None:
        unknown = self._unknown(Side.TENANT, "Namespace", "", namespace)
        return unknown or SizedView.super_namespace(self, namespace)


@pytest.mark.parametrize("situation", ["created", "equal", "changed", "deleted"])
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_nothing_is_made_changed_or_refused_by_what_is_unknown(sync: KindSync, situation: str) -> None:
    objects = pair(sync, "changed" if situation == "deleted" else situation, {})
    if situation == "deleted":
        objects = Pair(None, objects.super)

    def plan(view: _UnreadableView) -> Plan:
        found = sync.plan(key_of(sync), objects, view)
        has_tenant = objects.tenant is not None
        return hold(found, view.unknown, has_tenant=has_tenant, holds_changes=sync.holds_changes)

    known = _UnreadableView({})
    usual = plan(known)
    for each in known.looked:
        held = plan(_UnreadableView({}, unreadable=frozenset({each})))
        kinds = (Create, Patch) if sync.holds_changes else (Create,)
        assert not [action for action in held.down.actions if isinstance(action, kinds)], each
        assert set(held.refusals) <= set(usual.refusals), each
        assert _deleted(held) <= _deleted(usual), each
        if situation == "equal":
            assert [action for action in held.up.actions if action not in usual.up.actions] == [], each


def _deleted(plan: Plan) -> set[tuple[Side, str]]:
    return {(each.side, each.uid) for each in plan.actions if isinstance(each, Delete)}
