# SPDX-License-Identifier: Apache-2.0
"""What of a Node says where the super cluster itself is: its addresses, and the networks of its pods."""

import msgspec

from syncer.caches.cached_object import CachedObject

_ADDRESS_TYPES = ("InternalIP", "ExternalIP")


class _NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    pod_cidrs: list[str] | None = msgspec.field(name="podCIDRs", default=None)


class _NodeAddress(msgspec.Struct, frozen=True):
    address: str
    type: str


class _NodeStatus(msgspec.Struct, frozen=True):
    addresses: list[_NodeAddress] | None = None


class _NodeFacts(msgspec.Struct, frozen=True):
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


_FACTS = msgspec.json.Decoder(_NodeFacts)


def node_networks(cached: CachedObject) -> tuple[str, ...]:
    """Addresses and networks, as text; none of a Node of another shape."""
    try:
        node = _FACTS.decode(cached.body)
    except msgspec.DecodeError:
        return ()
    own = [each.address for each in node.status.addresses or () if each.type in _ADDRESS_TYPES]
    return (*own, *(node.spec.pod_cidrs or ()))
