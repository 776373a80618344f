# SPDX-License-Identifier: Apache-2.0
"""What is there and cannot be read, and what becomes of a plan that looked it up. Pure.

Such an object is unknown, not absent: a plan that takes it for absent makes a pod without what its ConfigMap
gives, or a slice beside a selector. So nothing is made or changed by it, and the author reads what it waits
for. When that object changes or goes, the plan is made anew, as after any change of what was looked up.
"""

from collections.abc import Collection
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from syncer.core.plan import Action, Delete, Patch, Plan, Side, Wait

UNREADABLE = "ObjectUnreadable"
SUPER_UNREADABLE = "SuperObjectUnreadable"

T = TypeVar("T")


class Unknown(msgspec.Struct, frozen=True, order=True):
    """An object that is there, and why it cannot be read. `namespace` is the tenant's.

    A look-up gives it in the place of the object. It is not None, so that no plan takes it for absent unless
    it says so (`if_known`).
    """

    side: Side
    kind: str
    namespace: str
    name: str
    reason: str

    def wait(self, others: int = 0) -> Wait:
        """What the author of an object reads that depends on it, and on so many more."""
        where = f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
        more = f", nor can {others} more" if others else ""
        if self.side is Side.SUPER:
            return Wait(SUPER_UNREADABLE, f"{where} cannot be read in the super cluster{more}: {self.reason}")
        return Wait(UNREADABLE, f"{where} is there and cannot be read{more}: {self.reason}")


def if_known(found: T | Unknown | None) -> T | None:
    """What was found; None also for what is unknown.

    For what comes up, which shows less without it, and for what `hold` stops whatever the plan is.
    """
    return None if isinstance(found, Unknown) else found


def hold(plan: Plan, unknown: Collection[Unknown], *, has_tenant: bool, holds_changes: bool) -> Plan:
    """The plan, or what of it can be carried out whatever the unknown objects are.

    `has_tenant`: the tenant has the planned object. `holds_changes` is that of its `KindSync`. What comes up
    is not held: without what it looked for it shows less, and nothing wrong.
    """
    down = plan.down
    if not unknown or not (down.actions or down.wait):
        return plan
    actions = tuple(
        each for each in down.actions if _is_kept(each, has_tenant=has_tenant, holds_changes=holds_changes)
    )
    if actions == down.actions and down.wait is None:
        return plan
    wait = min(unknown).wait(len(unknown) - 1)
    held = replace(down, actions=actions, wait=wait, changes=(), is_partial=False)
    return replace(plan, down=held)


def _is_kept(action: Action, *, has_tenant: bool, holds_changes: bool) -> bool:
    match action:
        case Delete(is_refused=is_refused):
            # With an object of the tenant's it follows from that alone: it ends, or is another one by now.
            return is_refused or has_tenant
        case Patch():
            return not holds_changes
        case _:
            return False
