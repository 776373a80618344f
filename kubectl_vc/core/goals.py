# SPDX-License-Identifier: Apache-2.0
"""When a request is complete, by the object's status: what a person waits for."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kubectl_vc.core.table import waits_for
from kubectl_vc.core.view import COMPLETED, READY, SLEEPING, UP_TO_DATE, TenantView, at, objects, text

_FAILED = "Failed"
_REFUSED = "Refused"
_ERROR = "Error"


class Judgement(NamedTuple):
    """Whether it is complete; if it failed for good, why; else what it waits for."""

    is_complete: bool
    failure: str = ""
    waits_for: str = ""


class Goal(NamedTuple):
    """What a person waits for: its name in sentences (`to become Ready`), and its judge."""

    name: str
    judge: Callable[[TenantView], Judgement]


def ready() -> Goal:
    """The control plane serves."""
    return Goal("to become Ready", lambda view: _judgement(view, is_complete=view.condition(READY).is_true))


def upgraded(target: str) -> Goal:
    """It runs this ClusterVersion, in all parts."""

    def judge(view: TenantView) -> Judgement:
        is_complete = view.version == target and view.condition(UP_TO_DATE).is_true
        return _judgement(view, is_complete=is_complete and view.condition(READY).is_true)

    return Goal(f"to run {target}", judge)


def confirmed() -> Goal:
    """The upgrade cannot be taken back any more."""

    def judge(view: TenantView) -> Judgement:
        return _judgement(view, is_complete=at(view.value, "status", "upgrade", "confirmed") is True)

    return Goal("to confirm its upgrade", judge)


def gone() -> Goal:
    """It is deleted. The watch ends with the object, so no state of it is the end."""

    def judge(view: TenantView) -> Judgement:
        return Judgement(False, waits_for=waits_for(view))

    return Goal("to be gone", judge)


def asleep() -> Goal:
    """No pod of it runs."""
    return Goal("to sleep", lambda view: _judgement(view, is_complete=view.condition(SLEEPING).is_true))


def awake() -> Goal:
    """It serves again."""

    def judge(view: TenantView) -> Judgement:
        sleeps = view.condition(SLEEPING).is_true
        return _judgement(view, is_complete=not sleeps and view.condition(READY).is_true)

    return Goal("to wake", judge)


def backup_complete(backup: str) -> Goal:
    """The backup of this name is complete."""

    def judge(view: TenantView) -> Judgement:
        for each in objects(view.value, "status", "backups"):
            if text(each, "name") == backup:
                if text(each, "phase") == _FAILED:
                    return Judgement(False, f"backup {backup} failed: {text(each, 'message')}")
                return Judgement(text(each, "phase") == COMPLETED, waits_for=text(each, "message"))
        return _judgement(view, is_complete=False)

    return Goal(f"to have the backup {backup}", judge)


def ready_to_restore() -> Goal:
    """The operator has taken note that the last restore is asked for no longer."""

    def judge(view: TenantView) -> Judgement:
        backup = text(view.value, "status", "restore", "backup")
        return Judgement(not backup, waits_for=f"vc-operator has not closed the restore of {backup} before")

    return Goal("to be ready for another restore", judge)


def restored(backup: str) -> Goal:
    """It serves what the backup has."""

    def judge(view: TenantView) -> Judgement:
        is_restored = text(view.value, "status", "restore", "backup") == backup
        phase = text(view.value, "status", "restore", "phase")
        if is_restored and phase == _REFUSED:
            return Judgement(False, f"refused: {text(view.value, 'status', 'restore', 'message')}")
        is_complete = is_restored and phase == COMPLETED
        return _judgement(view, is_complete=is_complete and view.condition(READY).is_true)

    return Goal(f"to go back to the backup {backup}", judge)


def rotated(tokens: Mapping[str, str]) -> Goal:
    """The operator has carried out these requests: by what rotates, their tokens."""

    def judge(view: TenantView) -> Judgement:
        left = [what for what in tokens if text(view.value, "status", "rotated", what) != tokens[what]]
        known = {text(each, "what"): each for each in objects(view.value, "status", "rotations")}
        waits = (
            f"{what} {text(known[what], 'phase')}: {text(known[what], 'waitsFor')}"
            if what in known
            else f"{what}: vc-operator has not begun its rotation"
            for what in left
        )
        return Judgement(not left, waits_for="; ".join(waits))

    return Goal("to complete the rotation", judge)


def announcement(view: TenantView, goal: Goal, timeout_s: float) -> str:
    """The first line of a wait."""
    return (
        f"waiting for VirtualCluster {view.path} {goal.name}, at most {dt.timedelta(seconds=int(timeout_s))}"
    )


def changes(before: TenantView | None, after: TenantView) -> list[str]:
    """A line for each condition that has changed; at first for each that is not True."""
    known = {} if before is None else {each.type: each for each in before.conditions}
    return [
        each.line()
        for each in after.conditions
        if known.get(each.type) != each and (each.type in known or not each.is_true)
    ]


def _judgement(view: TenantView, *, is_complete: bool) -> Judgement:
    """Of an object whose status is of an older spec, nothing is complete."""
    if not view.is_observed:
        return Judgement(False, waits_for="vc-operator has not observed the object")
    if is_complete:
        return Judgement(True)
    if view.phase == _ERROR:
        return Judgement(False, failure=waits_for(view) or view.message)
    return Judgement(False, waits_for=waits_for(view))
