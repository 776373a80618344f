# SPDX-License-Identifier: Apache-2.0
"""What becomes of a plan that looked up what is there and cannot be read. Pure.

Such an object is unknown, not absent: a plan that takes it for absent makes a pod without what its ConfigMap
gives, or a slice beside a selector. So nothing is made or changed by it, and the author reads what it waits
for. When that object changes or goes, the plan is made anew, as after any change of what was looked up.
"""

from collections.abc import Mapping
from dataclasses import replace

from syncer.core.plan import Action, Delete, Patch, Plan, Side, Wait

UNREADABLE = "ObjectUnreadable"
SUPER_UNREADABLE = "SuperObjectUnreadable"

# What they lead to may be another tenant's by now: a change of them takes addresses away, and never waits.
# What they may have besides is judged by addresses that are known to be the tenant's.
_NEVER_HELD = frozenset({"Endpoints", "EndpointSlice"})

Unknown = Mapping[tuple[Side, str, str, str], str]
"""Of each (side, kind, namespace, name) that is there, why it cannot be read."""


def hold(plan: Plan, unknown: Unknown, kind: str, *, has_tenant: bool) -> Plan:
    """The plan, or what of it can be carried out whatever the unknown objects are.

    `kind` is that of the planned object, and `has_tenant` whether the tenant has it. What comes up is not
    held: without what it looked for it shows less, and nothing wrong.
    """
    down = plan.down
    if not unknown or not (down.actions or down.wait):
        return plan
    actions = tuple(each for each in down.actions if _is_kept(each, kind, has_tenant=has_tenant))
    if actions == down.actions and down.wait is None:
        return plan
    held = replace(down, actions=actions, wait=_wait(unknown), changes=(), is_partial=False)
    return replace(plan, down=held)


def _is_kept(action: Action, kind: str, *, has_tenant: bool) -> bool:
    match action:
        case Delete(is_refused=is_refused):
            # With an object of the tenant's it follows from that alone: it ends, or is another one by now.
            return is_refused or has_tenant
        case Patch():
            return kind in _NEVER_HELD
        case _:
            return False


def _wait(unknown: Unknown) -> Wait:
    (side, kind, namespace, name), reason = min(unknown.items())
    where = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    more = f", nor can {len(unknown) - 1} more" if len(unknown) > 1 else ""
    if side is Side.SUPER:
        return Wait(SUPER_UNREADABLE, f"{where} cannot be read in the super cluster{more}: {reason}")
    return Wait(UNREADABLE, f"{where} is there and cannot be read{more}: {reason}")
