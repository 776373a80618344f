# SPDX-License-Identifier: Apache-2.0
"""What becomes of a plan while no SyncPolicy of the tenant has been known since the start. Pure.

What is in the super cluster was judged and translated by one that cannot be read now. By the built-in policy
it may be refused, or look different: that is not known. So nothing is made, changed, refused or deleted by
it. What may not stay whatever a policy says is deleted by the checks of tenants without plans
(`syncer.work.checks`).
"""

from msgspec.structs import replace

from syncer.core.plan import Action, Create, IssueTokens, Patch, Plan, Side, Wait
from syncer.kinds.port import KindSync
from syncer.policy.sync_policy import PolicyUnusable


def wait_for(problem: PolicyUnusable) -> Wait:
    """What an object waits for that a policy has to judge."""
    return Wait("SyncPolicyUnusable", problem.message)


def hold(plan: Plan, sync: KindSync, wait: Wait) -> Plan:
    """The plan, or what of it can be carried out whatever the policy is.

    What a kind would delete by the policy it leaves out itself, and where it holds no changes
    (`KindSync.holds_changes`) it makes none by the policy. What comes up is not judged.
    """
    down = plan.down
    creates = any(isinstance(each, Create) for each in down.actions)
    actions = tuple(each for each in down.actions if _is_kept(each, sync, creates=creates))
    if actions == down.actions and not down.refusals:
        return plan
    held = replace(down, actions=actions, refusals=(), wait=down.wait or wait, changes=(), is_partial=False)
    return replace(plan, down=held)


def _is_kept(action: Action, sync: KindSync, *, creates: bool) -> bool:
    match action:
        case Create():
            return action.side is Side.TENANT
        case Patch():
            return action.side is Side.TENANT or action.subresource == "status" or not sync.holds_changes
        case IssueTokens():
            return not creates
        case _:
            return True
