# SPDX-License-Identifier: Apache-2.0
"""The network of a node with guests: a namespace for the node, in it a bridge for each VPC, without
an address, so that the node's stack never sees its packets; and a link from each guest to the node.

Both VPCs have the same addresses, on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable

from ruleset.model import Endpoint
from tests.lab.namespaces import Lab, LabNamespace
from tests.lab.ruleset.peers import DATAGRAM, STREAM, Servers

NODE_ADDRESS, LINKS = "10.255.0.1", "10.255.0.0/24"
GATEWAY, GATEWAY6 = "10.0.0.1", "fd00::1"
_LINKS = "links"


class NodeNetworks:
    """The namespaces of one node, taken away by the lab."""

    def __init__(self, lab: Lab, vpcs: Iterable[str]) -> None:
        self._lab = lab
        self.node = lab.namespace("node")
        # The node's packet filter must not see frames between guests.
        for family in ("ip", "ip6"):
            self.node.run("sysctl", "-qw", f"net.bridge.bridge-nf-call-{family}tables=0")
        for name in (_LINKS, *vpcs):
            self._ip(f"link add {name} type bridge forward_delay 0 mcast_snooping 0", f"link set {name} up")
        self._ip(f"addr add {NODE_ADDRESS}/24 dev {_LINKS}")

    def taps(self, guest: str, vpc: str) -> tuple[str, str]:
        """A guest's two cards: in its VPC, and to the node, where it reaches no other guest."""
        names = f"{guest}v", f"{guest}n"
        for tap, bridge in zip(names, (vpc, _LINKS), strict=True):
            self._ip(f"tuntap add {tap} mode tap", f"link set {tap} master {bridge} up")
        self._ip(f"link set {names[1]} type bridge_slave isolated on")
        return names

    def servers(self, vpc: str, endpoints: Iterable[Endpoint]) -> LabNamespace:
        """A namespace in a VPC with these endpoints' addresses, and servers of TCP and UDP at them."""
        made = self._lab.namespace(f"{vpc}s")
        self._ip(f"link add {vpc}s type veth peer name eth0 netns {made.name}")
        self._ip(f"link set {vpc}s master {vpc} up")
        endpoints = tuple(endpoints)
        for ip in {GATEWAY, GATEWAY6, *(each.ip for each in endpoints)}:
            made.run(
                "ip", "addr", "add", *(f"{ip}/64 nodad".split() if ":" in ip else [f"{ip}/24"]), "dev", "eth0"
            )
        made.run("ip", "link", "set", "eth0", "up")
        servers = Servers(self._lab)
        for kind in (STREAM, DATAGRAM):
            servers.listen(made, endpoints, kind)
        servers.start()
        return made

    def attach(self, vpc: str, other: LabNamespace, address: str) -> None:
        """Put a namespace of another lab into a VPC, or give it one more address there.

        Its card is called `vpc`; it is in one VPC at most.
        """
        if "vpc@" not in other.run("ip", "-o", "link"):
            self._ip(f"link add {vpc}x type veth peer name vpc netns {other.name}")
            self._ip(f"link set {vpc}x master {vpc} up")
            other.run("ip", "link", "set", "vpc", "up")
        other.run("ip", "addr", "add", f"{address}/24", "dev", "vpc")

    def _ip(self, *commands: str) -> None:
        self.node.run("ip", "-batch", "-", stdin="\n".join(commands))
