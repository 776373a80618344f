# SPDX-License-Identifier: Apache-2.0
"""Which deletions of one tenant's objects may be carried out, downward and upward.

A deletion that a watch reported is carried out at once. One that a list or a start merely shows, by lacking
the object, waits for the judgement of `syncer.core.deletion_guard`: of the tenant's side for deletions in the
super cluster, of the super cluster's side for those in the tenant.
"""

from collections.abc import Callable, Generator, Mapping

from daemonkit import logs
from daemonkit.fairness.emptying import Holder
from daemonkit.fairness.steps import WorkStep
from syncer.core.deletion_guard import DeletionGuard, Hold, ObjectKey, Removal
from syncer.core.plan import Side

SyncKey = tuple[str, str, str]
"""(kind, tenant namespace, tenant name): what is planned as one."""

# Nothing is released: the tenant's VirtualCluster has no such annotation, or there is none.
NO_RELEASE = ""

_log = logs.get(__name__)


class Deletions:
    """`new_token` makes the token by which a person releases a hold; `now` is monotonic."""

    def __init__(
        self,
        tenant: str,
        new_token: Callable[[], str],
        now: Callable[[], float],
        restored: Mapping[Side, str] | None = None,
    ) -> None:
        """`restored` are the tokens of holds that the VirtualCluster's condition has, by side."""
        self._tenant = tenant
        self._new_token = new_token
        self._now = now
        self._guards = {side: DeletionGuard((restored or {}).get(side, "")) for side in Side}
        self._suspected: dict[Side, set[SyncKey]] = {side: set() for side in Side}
        self._unconfirmed: dict[Side, set[SyncKey]] = {side: set() for side in Side}

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all that is known of deletions, to be emptied in steps; nothing is any more."""
        held = *self._suspected.values(), *self._unconfirmed.values()
        self._suspected = {side: set() for side in Side}
        self._unconfirmed = {side: set() for side in Side}
        return (*held, *(each for guard in self._guards.values() for each in guard.take_all()))

    def holds(self) -> dict[Side, Hold]:
        """The holds that wait for a person, by the side where objects would be deleted."""
        found = {side: guard.hold for side, guard in self._guards.items()}
        return {side: hold for side, hold in found.items() if hold is not None and hold.token}

    def has_unconfirmed(self, side: Side) -> bool:
        """Whether objects of this side are to be deleted, though no event confirms it."""
        return bool(self._unconfirmed[side])

    def allowed(self, side: Side) -> Generator[None, None, list[SyncKey]]:
        """What of it may be deleted now, looked up in steps."""
        guard, step, found = self._guards[side], WorkStep(), []
        for item in tuple(self._unconfirmed[side]):
            if guard.may_delete(ObjectKey(*item)):
                found.append(item)
            if step.count():
                yield
        return found

    def gather(
        self, side: Side, contents: Callable[[SyncKey], Mapping[str, int]]
    ) -> Generator[None, None, None]:
        """Have `judge` know what is unconfirmed now, in steps. `contents` counts what goes with a Namespace.

        What is confirmed meanwhile is not gathered. What is proposed meanwhile waits for the next judgement.
        """
        guard, step = self._guards[side], WorkStep()
        for item in tuple(self._unconfirmed[side]):
            if item in self._unconfirmed[side]:
                guard.propose([Removal(ObjectKey(*item), tuple(sorted(contents(item).items())))])
            if step.count():
                yield

    def suspect(self, side: Side, item: SyncKey) -> None:
        """A list lacks the counterpart of this side's object: a deletion that follows is unconfirmed."""
        self._suspected[side].add(item)

    def is_suspected(self, side: Side, item: SyncKey) -> bool:
        return item in self._suspected[side]

    def propose(self, side: Side, item: SyncKey) -> None:
        """A plan deletes this side's object, and no event confirms it: `judge` decides."""
        self._unconfirmed[side].add(item)

    def note_confirmed(self, side: Side, item: SyncKey) -> None:
        """A watch saw the counterpart's deletion, or both sides agree, or this side's object is gone."""
        self._suspected[side].discard(item)
        if item in self._unconfirmed[side]:
            self._unconfirmed[side].discard(item)
            self._guards[side].withdraw(ObjectKey(*item))

    def is_unconfirmed(self, side: Side, item: SyncKey) -> bool:
        return item in self._unconfirmed[side]

    def may_delete(self, side: Side, item: SyncKey) -> bool:
        """Whether this side's object may be deleted now."""
        return item not in self._unconfirmed[side] or self._guards[side].may_delete(ObjectKey(*item))

    def note_deleted(self, side: Side, item: SyncKey) -> None:
        """A deletion was carried out."""
        if item in self._unconfirmed[side]:
            self._guards[side].note_deleted(ObjectKey(*item))
            self._unconfirmed[side].discard(item)
        self._suspected[side].discard(item)

    def judge(
        self,
        side: Side,
        known: Mapping[str, int],
        *,
        is_first_patrol: bool,
        release: str = NO_RELEASE,
        restored: str = NO_RELEASE,
    ) -> bool:
        """Judge what was gathered, at once; returns whether any of it may be deleted now.

        `known` counts this side's objects by kind. `restored` is the token of a tenant that went back to a
        backup: it lacks what the super cluster has.
        """
        guard = self._guards[side]
        before = guard.hold
        found = guard.evaluate(
            known,
            self._now(),
            new_token=self._new_token(),
            is_first_patrol=is_first_patrol,
            release=release,
            restored=restored if side is Side.SUPER else NO_RELEASE,
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
        return guard.may_delete_any
