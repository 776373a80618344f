# SPDX-License-Identifier: Apache-2.0
"""One vNode of one tenant: a state machine without requests and clocks. Pure.

Events come in with the time (seconds of a monotonic clock) and what is known of the super node; at most one
action goes out. What takes requests is done when the vNode's turn comes, by one worker at a time, and what
becomes of it comes back as events. Others may come between them.

| event | what changes | action |
|---|---|---|
| PodsBound | it is used, and not idle | ENQUEUE unless settled or backing off |
| PodGone | idle with the last pod | |
| BindingAsked | it is used, idle from now on without a pod | ENQUEUE unless settled or backing off |
| SuperNodeChanged | whether the policy covers it; no backoff | ENQUEUE unless settled |
| PolicyChanged | nothing is applied | |
| NodeVanished | nothing is applied; no backoff | ENQUEUE unless settled |
| NodeMatches | settled | |
| NodeDrifted | nothing is applied | ENQUEUE unless backing off |
| Tick | | ENQUEUE if it is not kept, or its backoff is over |
| TurnBegun | | REMOVE if it is not kept, APPLY if it is shown |
| NodeFound, NodeWritten | whose UID, which version | |
| NothingToWrite | settled with another version | |
| DeletionBegun, NodeDeleted, NodeAbsent | nothing is applied, no UID | |
| RemovalEnded | | FORGET if it is still not kept |
| StepFailed | what is the matter, and a longer backoff | |
| LeaseRenewed, LeaseMade | there is a Lease | ENQUEUE if it had one: its Node may be gone too |
"""

import enum
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from daemonkit.backoff import backoff_s, spread_s
from daemonkit.kube.resources import is_older
from syncer.core.plan import Conflict, Wait

# As upstream (constants.go:94): a pod that is made again often comes back to its node.
IDLE_GRACE_S = 120.0
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0

VNodeOutcome = Wait | Conflict | None


class SuperNodeFacts(NamedTuple):
    """What is known when an event comes.

    `version` changes with what the super node's vNodes show; 0 if there is no such node. `is_synced`: all
    super nodes and all pods of the tenant are known.
    """

    version: int
    is_synced: bool


class VNodeAction(enum.Enum):
    ENQUEUE = "enqueue"
    """Give it a turn."""
    APPLY = "apply"
    """Make the tenant's Node what it should be."""
    REMOVE = "remove"
    """Delete the tenant's Node."""
    FORGET = "forget"
    """It has no vNode any more."""


# ---- events


class PodsBound(msgspec.Struct, frozen=True):
    uids: Collection[str]
    """At least one."""


class PodGone(msgspec.Struct, frozen=True):
    uid: str


class BindingAsked(msgspec.Struct, frozen=True):
    """A pod of the tenant is to be bound to it."""


class SuperNodeChanged(msgspec.Struct, frozen=True):
    """`is_covered`: the policy shows it, whatever pods there are."""

    is_covered: bool


class PolicyChanged(msgspec.Struct, frozen=True):
    """It may have to look otherwise."""


class NodeVanished(msgspec.Struct, frozen=True):
    """The tenant's Node was deleted."""


class NodeMatches(msgspec.Struct, frozen=True):
    """The tenant's Node is seen, and is what it should be; `form` is what it shows without heartbeats."""

    uid: str
    form: int


class NodeDrifted(msgspec.Struct, frozen=True):
    """The tenant's Node is seen, and is not what it should be."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class TurnBegun(msgspec.Struct, frozen=True):
    """A worker has time for it."""


class NodeFound(msgspec.Struct, frozen=True):
    """The tenant's Node was read or made, and is ours; without UID it is not."""

    uid: str


class NodeWritten(msgspec.Struct, frozen=True):
    """It is as the super node was in `version`."""

    version: int
    form: int
    resource_version: str


class NothingToWrite(msgspec.Struct, frozen=True):
    """The super node's `version` shows nothing new."""

    version: int


class DeletionBegun(msgspec.Struct, frozen=True):
    """Whether there is a Node of ours is not known from now on."""


class NodeAbsent(msgspec.Struct, frozen=True):
    """The tenant has no Node of ours."""


class NodeDeleted(msgspec.Struct, frozen=True):
    """The tenant's Node was deleted by us, and its Lease goes with it."""


class RemovalEnded(msgspec.Struct, frozen=True):
    """What REMOVE asked for is done."""


class StepFailed(msgspec.Struct, frozen=True):
    why: Wait | Conflict


class LeaseRenewed(msgspec.Struct, frozen=True):
    pass


class LeaseMade(msgspec.Struct, frozen=True):
    """There was no Lease."""


VNodeEvent = (
    PodsBound
    | PodGone
    | BindingAsked
    | SuperNodeChanged
    | PolicyChanged
    | NodeVanished
    | NodeMatches
    | NodeDrifted
    | Tick
    | TurnBegun
    | NodeFound
    | NodeWritten
    | NothingToWrite
    | DeletionBegun
    | NodeAbsent
    | NodeDeleted
    | RemovalEnded
    | StepFailed
    | LeaseRenewed
    | LeaseMade
)


class VNodeMachine:
    """From the first pod, or the first policy that covers it, until FORGET.

    `version` is that of the super node which was applied last, 0 if the Node has to be looked at; `form`
    what was applied. `uid` is the Node's in the tenant, empty if there is none of ours, and
    `resource_version` that of our last write. `is_used`: a pod is or was there. Without that the tenant may
    have made the Node itself, and must not learn by it whether there is such a super node. `is_covered`: by
    the policy, whatever pods there are; while none is known, by the one that has shown it before.
    """

    __slots__ = (
        "_failures",
        "_idle_since_s",
        "_retry_s",
        "form",
        "has_lease",
        "is_covered",
        "is_used",
        "outcome",
        "pods",
        "resource_version",
        "uid",
        "version",
    )

    def __init__(self, now_s: float, *, is_covered: bool) -> None:
        self.pods: set[str] = set()
        self.is_used = False
        self.is_covered = is_covered
        self.version = self.form = 0
        self.uid = self.resource_version = ""
        self.has_lease = False
        self.outcome: VNodeOutcome = None
        self._idle_since_s: float | None = now_s
        self._failures = 0
        self._retry_s: float | None = None

    # ---- its state

    @property
    def is_shown(self) -> bool:
        """Whether the tenant may see it."""
        return self.is_used or self.is_covered

    def is_kept(self, facts: SuperNodeFacts, now_s: float) -> bool:
        """Whether it stays; before all is known everything does."""
        if self.pods or self.is_covered or not facts.is_synced:
            return True
        return self._idle_since_s is not None and now_s < self._idle_since_s + IDLE_GRACE_S

    def is_settled(self, facts: SuperNodeFacts) -> bool:
        """Whether the tenant has it as the super node is."""
        return facts.version > 0 and self.version == facts.version

    def is_delayed(self, now_s: float) -> bool:
        return self._retry_s is not None and now_s < self._retry_s

    def counts(self, resource_version: str) -> bool:
        """Whether this version of the tenant's Node says something: it is shown, and not older than ours."""
        return self.is_shown and not is_older(resource_version, self.resource_version)

    # ---- events

    def handle(
        self, event: VNodeEvent, facts: SuperNodeFacts, now_s: float, jitter: float = 0.0
    ) -> VNodeAction | None:
        """Take an event that happened at `now_s`; returns what to do."""
        match event:
            case PodsBound(uids):
                self.pods.update(uids)
                self.is_used, self._idle_since_s = True, None
            case PodGone(uid):
                if uid in self.pods:
                    self.pods.discard(uid)
                    self._idle_since_s = self._idle_since_s if self.pods else now_s
                return None
            case BindingAsked():
                self.is_used = True
                self._idle_since_s = self._idle_since_s if self.pods else now_s
            case SuperNodeChanged(is_covered):
                if self.is_covered and not is_covered:
                    self._idle_since_s = now_s
                self.is_covered, self._retry_s = is_covered, None
            case NodeVanished():
                self.version, self._retry_s = 0, None
            case NodeDrifted():
                self.version = 0
            case Tick():
                is_due = self._retry_s is not None and not self.is_delayed(now_s)
                return VNodeAction.ENQUEUE if is_due or not self.is_kept(facts, now_s) else None
            case LeaseMade() if self.has_lease:
                # A Lease goes with its Node: that may be gone too.
                self.version = self.form = 0
                return VNodeAction.ENQUEUE
            case TurnBegun() | RemovalEnded():
                return self._take_turn(event, facts, now_s)
            case _:
                self._complete(event, facts, now_s, jitter)
                return None
        return self._enqueue_unless_settled(facts, now_s)

    def _enqueue_unless_settled(self, facts: SuperNodeFacts, now_s: float) -> VNodeAction | None:
        is_at_rest = self.is_delayed(now_s) or self.is_settled(facts)
        return None if is_at_rest else VNodeAction.ENQUEUE

    def _take_turn(
        self, event: TurnBegun | RemovalEnded, facts: SuperNodeFacts, now_s: float
    ) -> VNodeAction | None:
        is_kept = self.is_kept(facts, now_s)
        if isinstance(event, RemovalEnded):
            # If a pod came meanwhile, its event has given it another turn.
            return None if is_kept else VNodeAction.FORGET
        if not is_kept:
            return VNodeAction.REMOVE
        return VNodeAction.APPLY if self.is_shown else None

    def _complete(self, event: VNodeEvent, facts: SuperNodeFacts, now_s: float, jitter: float) -> None:
        """Take what became of a turn, or what needs none."""
        match event:
            case NodeMatches(uid, form):
                self.uid = uid
                self._settle(facts.version, form)
            case NodeWritten(version, form, resource_version):
                self.resource_version = resource_version
                self._settle(version, form)
            case NodeFound(uid):
                self.uid = uid
            case NothingToWrite(version):
                self.version = version
            case PolicyChanged() | DeletionBegun():
                self.version = self.form = 0
            case NodeAbsent():
                self.uid = ""
            case NodeDeleted():
                self.uid, self.has_lease = "", False
            case LeaseRenewed() | LeaseMade():
                self.has_lease = True
            case StepFailed(why):
                self.outcome = why
                self._failures += 1
                longest = backoff_s(self._failures, first_s=FIRST_BACKOFF_S, longest_s=MAX_BACKOFF_S)
                self._retry_s = now_s + spread_s(longest, jitter)

    def _settle(self, version: int, form: int) -> None:
        self.version, self.form = version, form
        self.outcome, self._failures, self._retry_s = None, 0, None
