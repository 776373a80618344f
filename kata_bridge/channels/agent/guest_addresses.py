# SPDX-License-Identifier: Apache-2.0
"""Which addresses guests have, as their runtime told: whose certificate may come out of which."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence

from kata_bridge.sandboxes.core.sandbox import Appeared, Change

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address | None:
    """Read an address; one of IPv4 that is mapped into IPv6 is one of IPv4. None: it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class GuestAddresses:
    """The addresses of living sandboxes, kept up by `take`.

    `gateways` are networks that guests come out of with another address than their own.
    """

    def __init__(self, gateways: Sequence[Network] = ()) -> None:
        self._gateways = tuple(gateways)
        self._of: dict[str, frozenset[Address]] = {}
        # Tenants' networks may overlap, so that two guests have one.
        self._count: Counter[Address] = Counter()

    def __len__(self) -> int:
        return len(self._of)

    def take(self, changes: Iterable[Change]) -> None:
        """Take in what changed among the sandboxes of the node."""
        for change in changes:
            sandbox = change.sandbox.id if isinstance(change, Appeared) else change.id
            for address in self._of.pop(sandbox, frozenset()):
                self._count[address] -= 1
                if not self._count[address]:
                    del self._count[address]
            # The addresses of a pod in the host's network are the node's.
            if isinstance(change, Appeared) and not change.sandbox.is_host_network:
                said = map(parse_address, change.sandbox.ips)
                found = frozenset(address for address in said if address is not None)
                if found:
                    self._of[sandbox] = found
                    self._count.update(found)

    def is_guests(self, address: Address) -> bool:
        """Whether this is the own address of exactly one guest, and no gateway's."""
        return self._count[address] == 1 and not self._is_gateway(address)

    def why_not(self, sandbox: str, address: Address) -> str:
        """Empty, or why `sandbox` cannot be who connects from `address`.

        Nothing is held against a sandbox whose addresses nobody has told, nor against one that comes
        out of a gateway.
        """
        own = self._of.get(sandbox)
        if own is None or address in own or self._is_gateway(address):
            return ""
        return f"its certificate came from {address}, which is not its sandbox's address"

    def _is_gateway(self, address: Address) -> bool:
        return any(address in network for network in self._gateways)
