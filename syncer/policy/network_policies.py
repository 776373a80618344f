# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's NetworkPolicy may go down. Pure.

It opens and closes the tenant's own pods alone, so only its size is limited.
"""

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.refusal_list import RefusalList
from syncer.policy.sync_policy import SyncPolicy


def refusals(network_policy: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of a NetworkPolicy may not go down."""
    found = RefusalList()
    spec = found.fields("spec", network_policy.get("spec"))
    count = 0
    for name, peers in (("ingress", "from"), ("egress", "to")):
        for index, each in enumerate(found.items(f"spec.{name}", spec.get(name))):
            path = f"spec.{name}[{index}]"
            rule = found.fields(path, each)
            count += 1
            for field in (peers, "ports"):
                for item in found.items(f"{path}.{field}", rule.get(field)):
                    block = item.get("ipBlock") if type(item) is dict else None
                    count += 1
                    if type(block) is dict and type(excepted := block.get("except")) is list:
                        count += len(excepted)
    if count > policy.network_policies.max_peers:
        found.add("spec", f"{count} rules, peers and ports", "networkPolicies.maxPeers")
    return found.done()
