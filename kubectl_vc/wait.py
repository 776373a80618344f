# SPDX-License-Identifier: Apache-2.0
"""Waits until a request is complete, and prints what it waits for as that changes."""

from kubectl_vc.core.faults import PluginError, RequestError
from kubectl_vc.core.goals import Goal, announcement, changes
from kubectl_vc.core.view import VIRTUAL_CLUSTERS, TenantView
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation

_CLOCK = "%H:%M:%S"


def wait_for(invocation: Invocation, view: TenantView, goal: Goal, *, until_deleted: bool = False) -> int:
    """The exit code: failed if the time is over first. Raises PluginError.

    A deletion is the end of a wait for it, and the failure of any other.
    """
    began = invocation.monotonic()
    invocation.note(announcement(view, goal, invocation.command.timeout_s))
    seen: TenantView | None = None
    waits_for = "the super cluster has not answered"
    try:
        for change in invocation.cluster.watch(VIRTUAL_CLUSTERS, view, began + invocation.command.timeout_s):
            now = TenantView(change.value)
            if change.type == "DELETED" or now.uid != view.uid:
                if until_deleted:
                    return _done(invocation, view, began)
                raise PluginError(f"VirtualCluster {view.path} was deleted meanwhile")
            judgement = goal.judge(now)
            for line in changes(seen, now):
                _progress(invocation, line)
            if judgement.is_complete:
                return _done(invocation, view, began)
            if judgement.failure:
                raise PluginError(f"VirtualCluster {view.path}: {judgement.failure}")
            # Of what has conditions, their lines say it.
            if judgement.waits_for != waits_for and not _is_shown(now, judgement.waits_for):
                _progress(invocation, judgement.waits_for)
            seen, waits_for = now, judgement.waits_for
    except RequestError as error:
        raise invocation.failed("watch", error) from None
    except KeyboardInterrupt:
        invocation.note("")
        invocation.note(
            f"stopped waiting; what was asked of VirtualCluster {view.path} goes on. {_look(view)}"
        )
        raise
    invocation.note(
        f"VirtualCluster {view.path} is not done after {invocation.command.timeout_s:.0f} s: {waits_for}"
    )
    invocation.note(f"It goes on. {_look(view)}")
    return EXIT_FAILED


def _done(invocation: Invocation, view: TenantView, began: float) -> int:
    invocation.note(f"VirtualCluster {view.path}: done after {invocation.monotonic() - began:.0f} s")
    return EXIT_DONE


def _is_shown(view: TenantView, waits_for: str) -> bool:
    return waits_for in ("", *(each.line() for each in view.conditions))


def _progress(invocation: Invocation, line: str) -> None:
    invocation.note(f"{invocation.now().astimezone():{_CLOCK}}  {line}")


def _look(view: TenantView) -> str:
    which = f"{view.name} -n {view.namespace}"
    return f"To look: kubectl vc get {which}; kubectl vc doctor {which}"
