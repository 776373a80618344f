# SPDX-License-Identifier: Apache-2.0
"""Which certificate may come from which address, by the addresses that the runtime reports. Pure."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence

from kata_bridge.sandboxes.core.sandbox import Appeared, SandboxChange

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address | None:
    """Read an address, an IPv4-mapped one as IPv4; None for other text."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class GuestAddresses:
    """The addresses of running sandboxes.

    `gateways` are networks from which guests come with an address that is not their own.
    """

    def __init__(self, gateways: Sequence[Network] = ()) -> None:
        self._gateways = tuple(gateways)
        self._of: dict[str, frozenset[Address]] = {}
        # Tenants' networks may overlap, so that two guests have the same address.
        self._count: Counter[Address] = Counter()

    def __len__(self) -> int:
        return len(self._of)

    def update(self, changes: Iterable[SandboxChange]) -> None:
        """Apply changes of the node's sandboxes."""
        for change in changes:
            sandbox = change.sandbox.id if isinstance(change, Appeared) else change.id
            for address in self._of.pop(sandbox, frozenset()):
                self._count[address] -= 1
                if not self._count[address]:
                    del self._count[address]
            # A pod in the host's network has the node's addresses.
            if isinstance(change, Appeared) and not change.sandbox.is_host_network:
                parsed = map(parse_address, change.sandbox.ips)
                found = frozenset(address for address in parsed if address is not None)
                if found:
                    self._of[sandbox] = found
                    self._count.update(found)

    def has_single_owner(self, address: Address) -> bool:
        """Whether exactly one guest has this address, and no gateway."""
        return self._count[address] == 1 and not self._is_gateway(address)

    def mismatch(self, sandbox: str, address: Address) -> str:
        """Why `sandbox` cannot be the peer at `address`; empty if it can.

        A sandbox whose addresses are unknown can be any peer, and so can one behind a gateway.
        """
        own = self._of.get(sandbox)
        if own is None or address in own or self._is_gateway(address):
            return ""
        return f"the certificate came from {address}, which is not its sandbox's address"

    def _is_gateway(self, address: Address) -> bool:
        return any(address in network for network in self._gateways)
