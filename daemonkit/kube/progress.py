# SPDX-License-Identifier: Apache-2.0
"""What a reflector does next, after whatever happened. Pure: all of the retry policy lives here.

The rules in words:
- A list is followed by a watch from its version; a watch that ended is taken up where it stopped.
- Only what makes the position useless leads to a new list: 410 Gone, bytes that are no events, a
  version that went back, a request that the server calls wrong.
- Failures in a row back off exponentially. They are counted until a watch has been of use: a list
  that succeeds before a watch that never does must not make a tight loop.
- What the server asks for (Retry-After) is honoured, within reason.
"""

import enum
from dataclasses import dataclass, replace

from daemonkit.kube.resources import Status

BACKOFF_FIRST_S = 0.5
# client-go's reflector backs off to 30 s as well (tools/cache/reflector.go).
BACKOFF_MAX_S = 30.0
# A server, or what poses as one, must not be able to silence us for a day.
RETRY_AFTER_MAX_S = 120.0
# A watch that lasts less and brings nothing counts as a failure (reflector.go: "very short watch").
SHORT_WATCH_S = 1.0


class Action(enum.Enum):
    LIST = "list"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Step:
    """Wait `delay_s`, then act.

    A list `is_paged` unless its pages expired under us. It `is_fresh` when it must not come out of
    a cache; otherwise the server may answer any state not older than the one that we hold.
    """

    action: Action
    delay_s: float = 0.0
    is_paged: bool = True
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """The list was complete and has been taken over."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The server ended the watch, or the connection broke, after `lasted_s`.

    `is_useful` if at least one event or bookmark came.
    """

    lasted_s: float
    is_useful: bool


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing came within the deadline: the stream may be half open."""

    is_useful: bool


@dataclass(frozen=True, slots=True)
class Garbage:
    """The server sent what is no event or list."""

    reason: str


@dataclass(frozen=True, slots=True)
class Regressed:
    """The server offered an older state than ours. It was not taken over."""

    held: str
    offered: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server answered with an error, as a response or within the stream."""

    status: Status
    retry_after_s: float = 0.0
    is_useful: bool = False


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer: connection, TLS or a deadline."""

    reason: str


Outcome = Listed | Ended | Stalled | Garbage | Regressed | Refused | Unreachable

START = Step(Action.LIST, is_fresh=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a reflector is: the step under way and the failures in a row before it."""

    step: Step = START
    failures: int = 0


def after(progress: Progress, outcome: Outcome, jitter: float) -> Progress:
    """The next step. `jitter` is a random number in [0, 1)."""
    step = progress.step
    again = replace(step, delay_s=0.0)
    relist = Step(Action.LIST)
    match outcome:
        case Listed():
            return Progress(Step(Action.WATCH), progress.failures)
        case Ended(lasted_s, is_useful):
            if is_useful or lasted_s >= SHORT_WATCH_S:
                return Progress(again, 0)
            return _failed(progress, again, jitter)
        case Stalled(is_useful):
            return _failed(_forgiven(progress, is_useful), again, jitter)
        case Garbage():
            return _failed(progress, relist, jitter)
        case Regressed():
            return _failed(progress, replace(relist, is_fresh=True), jitter)
        case Refused(status, retry_after_s, is_useful):
            progress = _forgiven(progress, is_useful)
            wait_s = min(retry_after_s, RETRY_AFTER_MAX_S)
            if status.is_version_too_large:
                return _failed(progress, replace(relist, is_fresh=True), jitter, wait_s)
            if status.code == 410:
                # In a list it is the page token that is too old: ask for all at once, as
                # client-go's pager does ("fall back to full list").
                is_watch = step.action is Action.WATCH
                relist = replace(step, action=Action.LIST, delay_s=0.0, is_paged=is_watch)
                if progress.failures == 0:
                    return Progress(relist, 1)
                return _failed(progress, relist, jitter, wait_s)
            is_ours = 400 <= status.code < 500 and status.code not in (401, 403, 408, 429)
            return _failed(progress, relist if is_ours else again, jitter, wait_s)
        case Unreachable():
            return _failed(progress, again, jitter)


def backoff_s(failures: int, jitter: float) -> float:
    """The wait after `failures` in a row: doubling, and spread over its upper half."""
    ceiling_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 10))
    return ceiling_s * (0.5 + 0.5 * jitter)


def _failed(progress: Progress, step: Step, jitter: float, at_least_s: float = 0.0) -> Progress:
    failures = progress.failures + 1
    delay_s = max(backoff_s(failures, jitter), at_least_s)
    return Progress(replace(step, delay_s=delay_s), failures)


def _forgiven(progress: Progress, is_useful: bool) -> Progress:
    return replace(progress, failures=0) if is_useful else progress
