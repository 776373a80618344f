# SPDX-License-Identifier: Apache-2.0
"""Which deletions of one tenant's objects may be carried out, downward and upward.

A deletion that a watch reported is carried out at once. One that a list or a start merely shows, by lacking
the object, waits for the brake's judgement (`syncer.core.brake`): of the tenant's side for deletions in the
super cluster, of the super cluster's side for those in the tenant.
"""

from collections.abc import Callable, Mapping

from daemonkit import logs
from syncer.core.brake import Hold, ObjectKey, Removal, TenantBrake
from syncer.core.plan import Side

Item = tuple[str, str, str]
"""(kind, tenant namespace, tenant name): what is planned as one."""

# Nothing is released: the tenant's VirtualCluster has no such annotation, or there is none.
NO_RELEASE = ""

_log = logs.get(__name__)


class Deletions:
    """`new_token` makes the token by which a person releases a hold; `now` is monotonic."""

    def __init__(self, tenant: str, new_token: Callable[[], str], now: Callable[[], float]) -> None:
        self._tenant = tenant
        self._new_token = new_token
        self._now = now
        self._brakes = {side: TenantBrake() for side in Side}
        self._suspected: dict[Side, set[Item]] = {side: set() for side in Side}
        self._unconfirmed: dict[Side, set[Item]] = {side: set() for side in Side}

    def holds(self) -> dict[Side, Hold]:
        """The holds that wait for a person, by the side where objects would be deleted."""
        found = {side: brake.hold for side, brake in self._brakes.items()}
        return {side: hold for side, hold in found.items() if hold is not None and hold.token}

    def unconfirmed(self, side: Side) -> frozenset[Item]:
        """Objects of this side that are to be deleted, though no event confirms it."""
        return frozenset(self._unconfirmed[side])

    def suspect(self, side: Side, item: Item) -> None:
        """A list lacks the counterpart of this side's object: a deletion that follows is unconfirmed."""
        self._suspected[side].add(item)

    def is_suspected(self, side: Side, item: Item) -> bool:
        return item in self._suspected[side]

    def propose(self, side: Side, item: Item) -> None:
        """A plan deletes this side's object, and no event confirms it: `judge` decides."""
        self._unconfirmed[side].add(item)

    def note_confirmed(self, side: Side, item: Item) -> None:
        """A watch saw the counterpart's deletion, or both sides agree, or this side's object is gone."""
        self._suspected[side].discard(item)
        if item in self._unconfirmed[side]:
            self._unconfirmed[side].discard(item)
            self._brakes[side].withdraw(ObjectKey(*item))

    def is_unconfirmed(self, side: Side, item: Item) -> bool:
        return item in self._unconfirmed[side]

    def may_delete(self, side: Side, item: Item) -> bool:
        """Whether this side's object may be deleted now."""
        return item not in self._unconfirmed[side] or self._brakes[side].may_delete(ObjectKey(*item))

    def note_deleted(self, side: Side, item: Item) -> None:
        """A deletion was carried out."""
        if item in self._unconfirmed[side]:
            self._brakes[side].note_deleted(ObjectKey(*item))
            self._unconfirmed[side].discard(item)
        self._suspected[side].discard(item)

    def judge(
        self,
        side: Side,
        known: Mapping[str, int],
        contents: Callable[[Item], Mapping[str, int]],
        *,
        is_first_patrol: bool,
        release: str = NO_RELEASE,
    ) -> bool:
        """Judge what is unconfirmed; returns whether any of it may be deleted now.

        `known` counts this side's objects by kind, `contents` those that go with a Namespace.
        """
        brake = self._brakes[side]
        before = brake.hold
        items = self._unconfirmed[side]
        brake.propose(Removal(ObjectKey(*each), tuple(sorted(contents(each).items()))) for each in items)
        found = brake.evaluate(
            known, self._now(), new_token=self._new_token(), is_first_patrol=is_first_patrol, release=release
        )
        if isinstance(found, Hold) and found.token:
            if before is None or before.token != found.token:
                _log.warning(
                    "deletions are held until a person releases them",
                    tenant=self._tenant,
                    side=side,
                    reason=found.reason,
                    missing=found.missing,
                    known=found.known,
                    token=found.token,
                )
        elif before is not None and before.token:
            _log.info("held deletions are over", tenant=self._tenant, side=side)
        return any(brake.may_delete(ObjectKey(*each)) for each in items)
