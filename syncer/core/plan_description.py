# SPDX-License-Identifier: Apache-2.0
"""A plan as plain values for the operator. Pure.

Bodies of Secrets and ConfigMaps are never shown: of their patches the paths alone. So it is with large ones.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from syncer.core.plan import Action, Bind, Create, Delete, IssueTokens, Patch, Plan

_HIDDEN = frozenset({"Secret", "ConfigMap"})
_MAX_BYTES = 16 << 10
_MAX_PATHS = 200
_MAX_PATH_CHARS = 300


def describe_plan(plan: Plan) -> dict[str, object]:
    """What a plan would do, and why it does not do more."""
    return {
        "actions": [_describe(each) for each in plan.actions],
        "refusals": [{"path": each.path, "message": each.message} for each in plan.refusals],
        "wait": None if plan.wait is None else {"reason": plan.wait.reason, "message": plan.wait.message},
        "conflict": "" if plan.conflict is None else plan.conflict.message,
    }


def _describe(action: Action) -> dict[str, object]:
    match action:
        case Create(side, kind):
            return {"action": "create", "side": side.value, "kind": kind.kind}
        case Delete(side, kind):
            return {"action": "delete", "side": side.value, "kind": kind.kind}
        case Patch(side, kind):
            found = {"action": "patch", "side": side.value, "kind": kind.kind}
            if action.subresource:
                found["subresource"] = action.subresource
            is_hidden = kind.kind in _HIDDEN or len(msgspec.json.encode(action.body)) > _MAX_BYTES
            return found | ({"paths": _paths(action.body)} if is_hidden else {"patch": action.body})
        case Bind():
            return {"action": "bind", "side": "tenant", "kind": "Pod", "node": action.node}
        case IssueTokens():
            return {
                "action": "issueTokens",
                "side": "tenant",
                "kind": "Pod",
                "serviceAccount": action.service_account,
            }


def _paths(body: Any) -> list[str]:
    found = list(_leaves(body, ""))
    shown = [path[:_MAX_PATH_CHARS] for path in found[:_MAX_PATHS]]
    return shown if len(found) <= _MAX_PATHS else [*shown, f"and {len(found) - _MAX_PATHS} more"]


def _leaves(value: Any, path: str) -> Iterator[str]:
    """The path of each value that is no object; keys with a dot stand in brackets."""
    if not isinstance(value, dict) or not value:
        yield path
        return
    for name, each in value.items():
        step = f"[{name}]" if "." in name or "/" in name else f".{name}" if path else name
        yield from _leaves(each, path + step)
