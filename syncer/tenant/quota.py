# SPDX-License-Identifier: Apache-2.0
"""Holds the quota of one whole tenant: asked before each write to the super cluster.

Counts and bytes are those of the super cluster's caches. CPU, memory and the like are summed only where the
tenant's SyncPolicy limits them. What the caches do not show yet is reserved from the moment when its write
was allowed until they do, or until it failed.

A policy that limits CPU and the like has all objects counted, in steps. Until that has been done it is
unknown whether there is room: nothing grows that is summed, and nothing is refused.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from daemonkit.fairness.emptying import Holder
from daemonkit.fairness.steps import WorkStep
from syncer.caches.cached_object import CachedObject
from syncer.caches.stored_totals import Totals
from syncer.core.objects import Object
from syncer.core.patches import patched
from syncer.core.plan import Action, Create, IssueTokens, Patch, Plan, Refusal, Side, Wait
from syncer.policy import endpoints, limits, quantity
from syncer.policy.limits import STORED_BYTES
from syncer.policy.quota import TenantUsage, unstated
from syncer.policy.sync_policy import DEFAULT, SyncPolicy
from syncer.policy.usage import of_object, reduced_part
from syncer.tenant.deletions import SyncKey

QUOTA_EXCEEDED = "QuotaExceeded"
QUOTA_NOT_COUNTED = "QuotaNotCounted"
NOT_COUNTED = Wait(QUOTA_NOT_COUNTED, "what the tenant has is being counted for its quota")
COUNTED: SyncKey = ("Quota", "", "")
"""What a plan looks at that waits until what the tenant has is counted. No object has this key."""
# Each is decoded: a pod takes 20 us.
_COUNTED_AT_ONCE = 200
# Objects that wait for room, and how many of them are planned again when something has ended.
_MAX_REFUSED = 10_000
_AGAIN = 16
# What limits CPU, memory and the like is summed of these kinds. Counts and bytes are not among their names.
_SUMMED: Mapping[str, tuple[str, ...]] = {
    "Pod": ("pods", "requests.", "limits."),
    "Service": ("services.",),
    "PersistentVolumeClaim": ("requests.storage", ".storageclass.storage.k8s.io/"),
}


class _Stored:
    """The totals of a tenant, by the names of limits."""

    def __init__(self, totals: Callable[[], Totals], kinds: Mapping[str, str]) -> None:
        self._totals = totals
        self._kinds = kinds

    @property
    def stored_bytes(self) -> int:
        totals = self._totals()
        return totals.stored_bytes + totals.unreadable_bytes

    def count(self, name: str) -> int:
        kind = self._kinds.get(name)
        return 0 if kind is None else self._totals().counts[kind]


class TenantQuota:
    """`names` are those of kinds in limits; `totals` gives what the tenant has in the super cluster.

    `overhead` gives what pods of a runtime class take beside their containers, if that is known: the super
    cluster's admission adds it. `memory` says why the syncer cannot hold so many bytes more for the tenant.
    `is_known`: no change of a super object is still to come in here. `counted` is called when nothing is left
    that was written before its CPU and the like were limited: what waited for that is to be planned again.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        totals: Callable[[], Totals],
        overhead: Callable[[str], Object | None] = lambda _: None,
        memory: Callable[[int], str] = lambda _: "",
        is_known: Callable[[], bool] = lambda: True,
        counted: Callable[[], None] = lambda: None,
    ) -> None:
        self._names = names
        self._stored = _Stored(totals, {name: kind for kind, name in names.items()})
        self._overhead = overhead
        self._memory = memory
        self._is_known = is_known
        self._counted = counted
        self._policy = DEFAULT
        self._summed: frozenset[str] = frozenset()
        self._hard = limits.DEFAULTS
        self._usage = TenantUsage(self._hard, self._stored)
        self._is_counted = True
        self._written: dict[SyncKey, str] = {}
        self._refused: dict[SyncKey, None] = {}
        self._not_summed: set[SyncKey] = set()

    def start(self, policy: SyncPolicy) -> tuple[Holder, ...]:
        """Take a policy. What the tenant has is to be counted anew; what is under way stays reserved.

        Returns what held the old counts, to be emptied in steps.
        """
        self._policy = policy
        before, self._summed = self._summed, frozenset(kind for kind in _SUMMED if self._is_limited(kind))
        self._hard = limits.in_force(self._policy.quota)
        usage = TenantUsage(self._hard, self._stored)
        for key, kept in self._usage.reserved.items():
            usage.reserve(key, kept)
        held: tuple[Holder, ...] = self._refused, *self._usage.take_all()
        self._usage, self._refused = usage, {}
        # What of it limits CPU and the like was not reserved while nothing limited that.
        since = self._summed - before
        self._not_summed.update(item for item in self._written if item[0] in since)
        self._is_counted = not self._summed
        return held

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all that is counted, to be emptied in steps; nothing is any more."""
        held: tuple[Holder, ...] = self._written, self._refused, self._not_summed, *self._usage.take_all()
        self._written, self._refused, self._not_summed = {}, {}, set()
        return held

    @property
    def is_counted(self) -> bool:
        """Whether all that the tenant has is counted: until then nothing grows that is summed."""
        return self._is_counted

    def count(
        self, objects: Callable[[str], Iterable[tuple[SyncKey, CachedObject] | None]]
    ) -> Generator[None, None, None]:
        """Count in steps what the tenant has; `objects` gives its super objects of a kind, as they are then.

        What changes meanwhile is counted by `changed`. Where a policy comes meanwhile, this ends early.
        """
        usage, step = self._usage, WorkStep(_COUNTED_AT_ONCE)
        for kind in self._summed:
            for each in objects(kind):
                if each is not None:
                    usage.count(each[0], of_object(kind, each[1].load()))
                if step.count(0 if each is None else each[1].json_bytes):
                    yield
                    if usage is not self._usage:
                        return
        self._is_counted = True

    @property
    def stored_bytes_limit(self) -> int:
        """How many bytes the tenant may have in the super cluster."""
        return self._hard[STORED_BYTES] // quantity.UNIT

    def is_summed(self, kind: str) -> bool:
        """Whether the CPU and the like of a kind's objects are limited, so that each change of one counts."""
        return kind in self._summed

    def _is_limited(self, kind: str) -> bool:
        return any(part in name for name, _ in self._policy.quota for part in _SUMMED[kind])

    def changed(self, item: SyncKey, found: CachedObject | None, version: str, *, is_relisting: bool) -> bool:
        """A super object became this version; returns whether that may have made room.

        `found` is what the caches have: the last of several changes that came in one piece.
        """
        is_less = found is None
        if item[0] in self._summed:
            if found is None:
                self._usage.remove(item)
            else:
                is_less |= self._usage.count(item, of_object(item[0], found.load()))
        written = self._written.get(item)
        if written is None:
            return is_less
        # What was created is not gone before it was there: an earlier object of its name is.
        is_shown = written != "" if found is None else is_relisting or written in ("", version, found.version)
        if is_shown:
            self._settle(item)
        return is_less

    def admit(self, item: SyncKey, plan: Plan, found: Object | None) -> Plan:
        """The plan, or what is left of it if it would exceed a limit; what it writes is reserved.

        A refused plan still brings up what the super cluster says, deletes, and takes addresses away that
        Endpoints have no more. A refused resize holds nothing else back. What it gives back goes down, and
        makes room for the rest of it: until the kubelet has carried it out, old and new count.
        """
        is_summed = item[0] in self._summed and any(map(_is_growth, plan.down.actions))
        # What is under way itself is judged: else two that failed would wait for each other.
        is_counted = self._is_counted and (not self._not_summed or item in self._not_summed)
        if is_summed and not (is_counted and self._is_known()):
            return _uncounted(plan)
        refused = self._refusals(item, plan, found)
        if not refused:
            self._refused.pop(item, None)
            return plan
        if len(self._refused) < _MAX_REFUSED:
            self._refused[item] = None
        down = plan.down
        actions = tuple(each for each in down.actions if not _is_resize(each))
        is_more = len(actions) == len(down.actions)
        if is_more or self._refusals(item, replace(plan, down=replace(down, actions=actions)), found):
            actions = tuple(each for each in actions if not _is_growth(each))
        if any(isinstance(each, Create) for each in down.actions):
            actions = tuple(each for each in actions if not isinstance(each, IssueTokens))
        if found is not None:
            actions += tuple(_reduced(down.actions, found))
        # Planned again by each patrol, until there is room.
        refused = (*down.refusals, *refused)
        return replace(plan, down=replace(down, actions=actions, refusals=refused, is_partial=True))

    def _refusals(self, item: SyncKey, plan: Plan, found: Object | None) -> tuple[Refusal, ...]:
        kind = item[0]
        growing = [each for each in plan.down.actions if _is_growth(each)]
        if not growing:
            if item in self._written:
                self._settle(item)
            return ()
        more: dict[str, int] = {}
        after, size_bytes = found, 0
        for action in growing:
            if isinstance(action, Create):
                if kind == "Pod" and (missing := unstated(action.body, self._policy)):
                    return missing
                after = action.body
                more[self._names.get(kind, "")] = quantity.UNIT
            elif isinstance(action, Patch) and kind in self._summed:
                after = patched(after or {}, action)
            # Of a patch never less than what the object grows by.
            size_bytes += len(msgspec.json.encode(action.body)) if isinstance(action, Create | Patch) else 0
        if kind in self._summed and after is not None:
            usage = of_object(kind, self._with_overhead(kind, after))
            more |= usage if found is None else self._usage.difference(item, usage)
        more[STORED_BYTES] = size_bytes * quantity.UNIT
        refusal = self._usage.excess(item, more)
        if refusal is not None and found is not None:
            # A large object that is written anew is little more than it was.
            more[STORED_BYTES] = self._growth_bytes(found, growing) * quantity.UNIT
            refusal = self._usage.excess(item, more)
        if refusal is None and (problem := self._memory(size_bytes)):
            refusal = Refusal("object", problem)
        if refusal is not None:
            self._settle(item)
            return (refusal,)
        self._usage.reserve(item, more)
        self._note_summed(item)
        # Until the answer says which version has it, a creation alone is known by its being there.
        self._written[item] = "" if found is None else "unknown"
        return ()

    @staticmethod
    def _growth_bytes(found: Object, growing: Iterable[Action]) -> int:
        after = found
        for action in growing:
            if isinstance(action, Patch):
                after = patched(after, action)
        return len(msgspec.json.encode(after)) - len(msgspec.json.encode(found))

    def _with_overhead(self, kind: str, value: Object) -> Object:
        """A pod with what the super cluster's admission gives it for its runtime class."""
        spec = value.get("spec")
        if kind != "Pod" or type(spec) is not dict or "overhead" in spec:
            return value
        name = spec.get("runtimeClassName")
        overhead = self._overhead(name) if type(name) is str and name else None
        return value if overhead is None else {**value, "spec": {**spec, "overhead": overhead}}

    def is_reserved(self, item: SyncKey) -> bool:
        """Whether a write was allowed that the caches do not show yet."""
        return item in self._written

    def written(self, item: SyncKey, version: str | None, cached: CachedObject | None) -> None:
        """What was allowed has been written as this version: it is counted once the caches have it."""
        if item not in self._written:
            return
        if cached is not None and cached.version == version:
            self._settle(item)
        elif version and self._written[item]:
            self._written[item] = version

    def forget(self, item: SyncKey) -> bool:
        """A write was refused by the super cluster, or its object is gone; returns whether that made room."""
        self._refused.pop(item, None)
        return self._settle(item)

    def _settle(self, item: SyncKey) -> bool:
        """The caches show what was written, or it is not written; returns whether that was reserved."""
        self._written.pop(item, None)
        self._note_summed(item)
        return self._usage.release(item)

    def is_not_summed(self, item: SyncKey) -> bool:
        """Whether it may have been written, and what it takes is not reserved: until it is, nothing grows.

        `admit` reserves it, whether its write is due or not.
        """
        return item in self._not_summed

    def _note_summed(self, item: SyncKey) -> None:
        if item in self._not_summed:
            self._not_summed.discard(item)
            if not self._not_summed:
                self._counted()

    def refused_items(self) -> list[SyncKey]:
        """Some objects that were refused, to be planned again where something has ended. Each comes once."""
        found = list(self._refused)[:_AGAIN]
        for item in found:
            del self._refused[item]
        return found

    def wait_for_room(self) -> Wait | None:
        """What the Secret of a pod's tokens waits for, where the tenant has no room left."""
        if self._usage.used(STORED_BYTES) < self._hard[STORED_BYTES]:
            return None
        return Wait(
            QUOTA_EXCEEDED,
            f"the tokens of the pod exceed the tenant's quota: {STORED_BYTES} is used up "
            f"(SyncPolicy field spec.quota.hard[{STORED_BYTES}])",
        )


def _uncounted(plan: Plan) -> Plan:
    """The plan without what grows, to be made again."""
    down = plan.down
    actions = tuple(each for each in down.actions if not _is_growth(each))
    if any(isinstance(each, Create) for each in down.actions):
        actions = tuple(each for each in actions if not isinstance(each, IssueTokens))
    return replace(plan, down=replace(down, actions=actions, wait=down.wait or NOT_COUNTED))


def _reduced(actions: Iterable[Action], found: Object) -> Iterator[Patch]:
    """What of refused patches makes less, or leads to fewer addresses: those may be others' by now."""
    for each in actions:
        if isinstance(each, Patch) and _is_resize(each):
            body = reduced_part(found, each.body)
        elif isinstance(each, Patch) and each.side is Side.SUPER and each.kind.kind in endpoints.KINDS:
            body = endpoints.removal_patch(found, patched(found, each))
        else:
            continue
        if body:
            yield replace(each, body=body)


def _is_resize(action: Action) -> bool:
    return isinstance(action, Patch) and action.subresource == "resize"


def _is_growth(action: Action) -> bool:
    """Whether an action makes more of the super cluster's objects. Statuses of a pod's gates are small."""
    if isinstance(action, Create):
        return action.side is Side.SUPER
    return isinstance(action, Patch) and action.side is Side.SUPER and action.subresource != "status"
