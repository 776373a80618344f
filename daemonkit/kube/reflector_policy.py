# SPDX-License-Identifier: Apache-2.0
"""What a reflector does next, after whatever happened. Pure: all of the retry policy lives here.

The rules in words:
- A list is followed by a watch from its version; a watch that ended is taken up where it stopped.
- What invalidates the position leads to a new list: 410 Gone, bytes that are not events, a version
  that went back, a refused request. The first 410 does so at once: a restarted server answers it, and
  that server is up.
- So do several watches in a row that brought neither event nor bookmark. A server sends no bookmarks of a
  kind that had no event since it started (k8s.io/apiserver, storage/cacher: dispatchEvents; seen with
  1.34). Nothing distinguishes a server that never sends any, or a proxy
  that holds back what it gets.
- A watch is of use if it brought an event of an object, or a bookmark and lasted SHORT_WATCH_S. A server that
  ends each watch behind a bookmark would be asked again and again.
- Failures in a row back off exponentially. Those that lead from a watch to a list are counted until a watch
  has been of use. Otherwise a working list before a failing watch would make a tight loop.
- A resource that is not installed is looked for as one that fails: soon at first, as what a new cluster gets
  is often installed within its first seconds.
- What the server asks for (Retry-After) is honoured, within reason.
"""

import enum
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from daemonkit.backoff import backoff_s, spread_s
from daemonkit.kube.resources import Status
from daemonkit.remedies import Cause

BACKOFF_FIRST_S = 0.5
# client-go's reflector backs off to 30 s as well (tools/cache/reflector.go).
BACKOFF_MAX_S = 30.0
# A server, or what poses as one, must not be able to silence us for a day.
RETRY_AFTER_MAX_S = 120.0
# A watch that lasts less and brings nothing counts as a failure (reflector.go: "very short watch").
SHORT_WATCH_S = 1.0
# With watches of 210 to 240 s that makes a list each eleven to twelve minutes.
MAX_SILENT_WATCHES = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """How a reflector asks and waits.

    The request asks the server to end a watch after `watch_timeout_s` or up to an eighth sooner, at random.
    So watches of many nodes spread over servers (client-go does the same with 5 to 10 minutes). API servers
    send no bookmarks of a kind that had no event since they started: its state is confirmed when a watch
    ends. Of other kinds they send one each minute (k8s.io/apiserver, storage/cacher: bookmarkFrequency). So
    the reflector takes a stream for half open that has brought something, and then nothing for
    `idle_timeout_s`.
    """

    page_size: int = 500
    watch_timeout_s: float = 240.0
    idle_timeout_s: float = 90.0
    # What the server may be late with ending a watch.
    margin_s: float = 10.0

    def timeout_s(self, jitter: float) -> float:
        """How long the server is asked to let a watch last. `jitter` is a random number in [0, 1)."""
        return self.watch_timeout_s * (1.0 - jitter / 8.0)


class Action(enum.Enum):
    LIST = "list"
    WATCH = "watch"


class Step(msgspec.Struct, frozen=True):
    """Wait `delay_s`, then act.

    A list `is_paged` unless its pages expired under us. It `is_fresh` when it must not come out of
    a cache; otherwise the server may answer any state not older than the one that we hold.
    """

    action: Action
    delay_s: float = 0.0
    is_paged: bool = True
    is_fresh: bool = False


class Listed(msgspec.Struct, frozen=True):
    """The list was complete and has been taken over."""


class Absent(msgspec.Struct, frozen=True):
    """The server does not know the resource: a CRD that is not installed (yet)."""


class Ended(msgspec.Struct, frozen=True):
    """The server ended the watch, or the connection broke, after `lasted_s`."""

    lasted_s: float
    is_useful: bool


class Stalled(msgspec.Struct, frozen=True):
    """Nothing came in time, not even the end: the stream may be half open."""

    is_useful: bool


class Garbage(msgspec.Struct, frozen=True):
    """The server sent something other than an event or list."""

    reason: str


class Regressed(msgspec.Struct, frozen=True):
    """The server offered an older state than ours. It was not taken over."""

    known: str
    offered: str


class Refused(msgspec.Struct, frozen=True):
    """The API server answered with an error, as a response or within the stream."""

    status: Status
    retry_after_s: float = 0.0
    is_useful: bool = False
    server: str = ""


class Unreachable(msgspec.Struct, frozen=True):
    """No answer: connection, TLS or a deadline; `server` is empty where no kubeconfig names it."""

    reason: str
    cause: Cause = Cause.OTHER
    server: str = ""


Outcome = Listed | Absent | Ended | Stalled | Garbage | Regressed | Refused | Unreachable

START = Step(Action.LIST, is_fresh=True)


class Progress(msgspec.Struct, frozen=True):
    """Where a reflector is: the step under way, and what went before it.

    `failures` in a row of anything; `relists` that watches led to, and `silent_watches`, watches that
    brought nothing, since a watch was last of use; `absences`, lists in a row
    that the server answered without knowing the resource.
    """

    step: Step = START
    failures: int = 0
    relists: int = 0
    silent_watches: int = 0
    absences: int = 0


def is_watch_useful(lasted_s: float, *, has_events: bool, has_bookmarks: bool) -> bool:
    """Whether a watch that lasted so long was of use. `has_events`: of objects."""
    return has_events or (has_bookmarks and lasted_s >= SHORT_WATCH_S)


def after(progress: Progress, outcome: Outcome, jitter: float) -> Progress:
    """The next step. `jitter` is a random number in [0, 1)."""
    again = replace(progress.step, delay_s=0.0)
    match outcome:
        case Listed():
            return Progress(Step(Action.WATCH), relists=progress.relists)
        case Absent():
            absences = progress.absences + 1
            return Progress(Step(Action.LIST, pause_s(absences, jitter), is_fresh=True), absences=absences)
        case Ended(_, is_useful=True):
            return Progress(again)
        case Ended(lasted_s):
            if lasted_s >= SHORT_WATCH_S:
                return _silent(progress, 0.0)
            return _failed(progress, again, jitter)
        case Stalled(is_useful):
            return _silent(Progress(again) if is_useful else progress, pause_s(1, jitter))
        case Garbage():
            return _relist(progress, jitter)
        case Regressed():
            return _relist(progress, jitter, is_fresh=True)
        case Refused(is_useful=True):
            return _refused(Progress(progress.step), outcome, jitter)
        case Refused():
            return _refused(progress, outcome, jitter)
        case Unreachable():
            # The answer to a list without pages may be larger than is read, now and at each other try.
            return _failed(progress, replace(again, is_paged=True), jitter)


def retried(progress: Progress) -> Progress:
    """The step that waits, at once: what it failed for may be over, and nothing of it counts any more."""
    return Progress(replace(progress.step, delay_s=0.0))


def pause_s(failures: int, jitter: float) -> float:
    """The wait after `failures` in a row: doubling, and spread over its upper half."""
    return spread_s(backoff_s(failures, first_s=BACKOFF_FIRST_S, longest_s=BACKOFF_MAX_S), jitter)


def _refused(progress: Progress, outcome: Refused, jitter: float) -> Progress:
    step, status = progress.step, outcome.status
    wait_s = min(outcome.retry_after_s, RETRY_AFTER_MAX_S)
    if status.is_version_too_large:
        return _relist(progress, jitter, wait_s, is_fresh=True)
    if status.code == 410:
        if step.action is Action.WATCH and progress.relists == 0:
            return Progress(Step(Action.LIST), relists=1)
        if step.action is Action.LIST and step.is_paged:
            # The page token is too old: ask for all at once, as client-go's pager does.
            return replace(progress, step=replace(step, delay_s=0.0, is_paged=False))
    if 400 <= status.code < 500 and status.code not in (401, 403, 408, 429):
        return _relist(progress, jitter, wait_s)
    return _failed(progress, replace(step, delay_s=0.0), jitter, wait_s)


def _failed(progress: Progress, step: Step, jitter: float, at_least_s: float = 0.0) -> Progress:
    failures = progress.failures + 1
    delay_s = max(pause_s(failures, jitter), at_least_s)
    return replace(progress, step=replace(step, delay_s=delay_s), failures=failures)


def _relist(
    progress: Progress, jitter: float, at_least_s: float = 0.0, *, is_fresh: bool = False
) -> Progress:
    """List, after a wait. From a list that failed so this is the same list again."""
    step = progress.step
    if step.action is Action.LIST:
        return _failed(progress, replace(step, is_fresh=step.is_fresh or is_fresh), jitter, at_least_s)
    relists = progress.relists + 1
    delay_s = max(pause_s(relists, jitter), at_least_s)
    return Progress(Step(Action.LIST, delay_s, is_fresh=is_fresh), relists=relists)


def _silent(progress: Progress, delay_s: float) -> Progress:
    silent_watches = progress.silent_watches + 1
    if silent_watches >= MAX_SILENT_WATCHES:
        return Progress(Step(Action.LIST, delay_s))
    return Progress(Step(Action.WATCH, delay_s), 0, progress.relists, silent_watches)
