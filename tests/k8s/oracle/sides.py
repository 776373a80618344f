# SPDX-License-Identifier: Apache-2.0
"""The sources and destinations of packets: a pod behind a node, and a guest without a node between.

    pod ── node (kube-proxy's rules) ── everywhere        the host's side
    guest (our rules) ───────────────── everywhere        the guest's side

`everywhere` has every address. Namespaces have no names: they end with this process.
"""

import socket
from contextlib import ExitStack
from dataclasses import dataclass

from tests.cases.services.namespace import ThreadedNamespace
from tests.k8s.oracle.packets import TRAFFIC_CLASS

_ETH_P_ALL = 3
# linux/socket.h, linux/if_packet.h; Python has no names for them
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23
_SO_RCVBUFFORCE = 33
_TAP_BYTES = 64 << 20
_GATEWAYS = ("169.254.1.1", "fe80::1")
_SETTINGS = {
    # An address would be tentative, and unusable, for a second.
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/addr_gen_mode": "1",
    # ICMP errors are results here, as many as there are probes.
    "net/ipv4/icmp_ratemask": "0",
    "net/ipv6/icmp/ratemask": "255-255",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
}
_ROUTER_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    # A pod that reaches itself by its node is sent back where it came from.
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
}
# Entries of unanswered flows must outlive a slow test. A retransmitted SYN does not refresh its entry.
_CONNTRACK_SETTINGS = {
    "net/netfilter/nf_conntrack_udp_timeout": "600",
    "net/netfilter/nf_conntrack_tcp_timeout_syn_sent": "3600",
    "net/netfilter/nf_conntrack_tcp_timeout_max_retrans": "3600",
}
# No stack need reply to a crafted packet.
_IGNORE = f"""\
table inet ignored {{
	chain prerouting {{
		type filter hook prerouting priority -500; policy accept;
		ip dscp {TRAFFIC_CLASS >> 2} drop
		ip6 dscp {TRAFFIC_CLASS >> 2} drop
	}}
}}
"""
# The same for a guest with legacy iptables: with an nf_tables table the agent would detect the
# variant nft. The filter
# rule makes the legacy variant recognisable.
_IGNORE_LEGACY = f"""\
*raw
-A PREROUTING -m tos --tos {TRAFFIC_CLASS} -j DROP
COMMIT
*filter
-A INPUT -i somebody0 -j ACCEPT
COMMIT
"""
# `everywhere` is silent without a listener, so that each refusal comes from the rules.
_SILENT = """\
table inet silent {
	chain output {
		type filter hook output priority 0; policy accept;
		tcp flags & rst == rst drop
		icmp type destination-unreachable drop
		icmpv6 type destination-unreachable drop
	}
}
"""


@dataclass(frozen=True, slots=True)
class OracleNode:
    """A node, and a pod on it; addresses of both, IPv4 first."""

    name: str
    zone: str
    node_ips: tuple[str, str]
    pod_ips: tuple[str, str]


@dataclass(frozen=True, slots=True)
class OracleSide:
    """Packets start in `near`; `ruled` has the rules, `far` all other addresses.

    `senders` take whole packets, by the version of IP; `taps` see what arrives in `near` and `far`.
    """

    name: str
    node: OracleNode
    near: ThreadedNamespace
    ruled: ThreadedNamespace
    far: ThreadedNamespace
    senders: dict[int, socket.socket]
    taps: tuple[socket.socket, socket.socket]

    def forget_flows(self) -> None:
        """Empty the conntrack table of `ruled`."""
        self.ruled.run("conntrack", "-F")


def host_side(node: OracleNode, stack: ExitStack) -> OracleSide:
    """A pod, its node without rules yet, and everywhere. `ruled` is the node."""
    pod, host, far = (_namespace(f"{node.name}-{name}", stack) for name in ("pod", "node", "far"))
    for path, value in _ROUTER_SETTINGS.items():
        host.call(_set, path, value)
    _link(pod, "eth0", host, "pod0", 1)
    _link(host, "up0", far, "eth0", 2)
    _lead(pod, "eth0", node.pod_ips, ("default",), 1)
    _lead(host, "up0", node.node_ips, ("default",), 2)
    for ip in node.pod_ips:
        _route_to(host, "pod0", ip, 1)
    _be_everywhere(far, (*node.pod_ips, *node.node_ips), 2)
    pod.run("nft", "-f", "-", text=_IGNORE)
    return _side(f"kube-proxy on {node.name}", node, pod, host, far, stack)


def guest_side(node: OracleNode, stack: ExitStack, *, is_legacy: bool) -> OracleSide:
    """A guest without rules of ours, and everywhere. `is_legacy`: its iptables is the legacy one."""
    guest, far = (_namespace(f"{node.name}-guest{name}", stack) for name in ("", "-far"))
    _link(guest, "eth0", far, "eth0", 3)
    _lead(guest, "eth0", node.pod_ips, ("default",), 3)
    _be_everywhere(far, node.pod_ips, 3)
    if is_legacy:
        for restore in ("iptables-legacy-restore", "ip6tables-legacy-restore"):
            guest.run(restore, "--noflush", "-w", "5", text=_IGNORE_LEGACY)
    else:
        guest.run("nft", "-f", "-", text=_IGNORE)
    return _side(f"the guest of {node.name}", node, guest, guest, far, stack)


def _side(
    name: str,
    node: OracleNode,
    near: ThreadedNamespace,
    ruled: ThreadedNamespace,
    far: ThreadedNamespace,
    stack: ExitStack,
) -> OracleSide:
    for path, value in _CONNTRACK_SETTINGS.items():
        ruled.call(_set, path, value)
    senders = {
        version: near.call(_sender, family) for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6))
    }
    taps = (near.call(_tap), far.call(_tap))
    for one in (*senders.values(), *taps):
        stack.callback(one.close)
    return OracleSide(name, node, near, ruled, far, senders, taps)


def _namespace(name: str, stack: ExitStack) -> ThreadedNamespace:
    made = ThreadedNamespace(name)
    stack.callback(made.close)
    for path, value in _SETTINGS.items():
        made.call(_set, path, value)
    made.run("ip", "link", "set", "lo", "up")
    return made


def _mac(link: int, end: int) -> str:
    return f"02:00:00:00:{link:02x}:{end:02x}"


def _link(
    one: ThreadedNamespace, device: str, other: ThreadedNamespace, others_device: str, link: int
) -> None:
    """A link whose number is `link`, `one` at its first end; both ends have static neighbour entries."""
    one.run(
        *("ip", "link", "add", device, "address", _mac(link, 1), "type", "veth"),
        *("peer", "name", others_device, "address", _mac(link, 2), "netns", other.path),
    )
    one.run("ip", "link", "set", device, "up")
    other.run("ip", "link", "set", others_device, "up")


def _lead(
    namespace: ThreadedNamespace, device: str, ips: tuple[str, str], where: tuple[str, ...], link: int
) -> None:
    """Give the device at the first end its addresses, and route everything to the other end."""
    for ip, gateway in zip(ips, _GATEWAYS, strict=True):
        flag, dad = ("-6", ["nodad"]) if ":" in ip else ("-4", [])
        namespace.run("ip", flag, "addr", "add", ip, "dev", device, *dad)
        namespace.run("ip", "neigh", "add", gateway, "lladdr", _mac(link, 2), "dev", device)
        for one in where:
            namespace.run("ip", flag, "route", "add", one, "via", gateway, "dev", device, "onlink")


def _route_to(namespace: ThreadedNamespace, device: str, ip: str, link: int) -> None:
    """From the second end to an address at the first."""
    namespace.run("ip", "-6" if ":" in ip else "-4", "route", "add", ip, "dev", device)
    namespace.run("ip", "neigh", "add", ip, "lladdr", _mac(link, 1), "dev", device)


def _be_everywhere(far: ThreadedNamespace, but: tuple[str, ...], link: int) -> None:
    """Have all addresses but these, which are at the first end of the link."""
    # So it can reply from addresses that it has by a route alone.
    far.call(_set, "net/ipv6/ip_nonlocal_bind", "1")
    for flag, every in (("-4", "0.0.0.0/0"), ("-6", "::/0")):
        far.run("ip", flag, "route", "add", "local", every, "dev", "lo", "table", "main")
    for ip in but:
        _route_to(far, "eth0", ip, link)
    far.run("nft", "-f", "-", text=_IGNORE + _SILENT)


def _set(path: str, value: str) -> None:
    with open(f"/proc/sys/{path}", "w", encoding="ascii") as file:  # noqa: PTH123 - a kernel setting
        file.write(value)


def _sender(family: socket.AddressFamily) -> socket.socket:
    """Made in the namespace: sends whole packets, with headers, through every hook of OUTPUT."""
    return socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)


def _tap() -> socket.socket:
    """Made in the namespace: sees every packet that comes in on any of its links."""
    one = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
    one.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    one.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _TAP_BYTES)
    one.setblocking(False)
    return one
