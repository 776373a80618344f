# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Network may go down: it may name a network of the provider's, which has others. Pure."""

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import SyncPolicy


def refusals(network: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of a Network may not go down."""
    found = RefusalList()
    named = found.fields("spec", network.get("spec")).get("vpcID")
    if named not in (None, "") and not policy.networks.vpc_ids.match(text_of(named)):
        found.add("spec.vpcID", f"VPC {shown(named)}", "networks.vpcIDs")
    return found.done()
