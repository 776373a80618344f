# SPDX-License-Identifier: Apache-2.0
"""A guest and its outside, as two network namespaces.

The outside has every address, and sends neither RST nor ICMP where nothing listens. So each refusal that a
guest gets is from its own rules.
"""

import socket
from collections.abc import Iterable

from tests.cases.services.namespace import ThreadedNamespace
from tests.cases.services.probe import Probe
from tests.cases.services.responder import Responder

_GATEWAY = {socket.AF_INET: "169.254.1.1", socket.AF_INET6: "fe80::1"}
_EVERY = {socket.AF_INET: "0.0.0.0/0", socket.AF_INET6: "::/0"}
_BITS = {socket.AF_INET: 32, socket.AF_INET6: 128}
_MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
_QUIET_NFT = """\
table inet quiet {
	chain output {
		type filter hook output priority 0; policy accept;
		tcp flags & rst == rst drop
		icmp type destination-unreachable drop
		icmpv6 type destination-unreachable drop
	}
}
"""
_QUIET_IPTABLES = """\
*filter
-A OUTPUT -p tcp --tcp-flags RST RST -j DROP
-A OUTPUT -p {icmp} -m {module} --{module}-type destination-unreachable -j DROP
COMMIT
"""


class Lab:
    """One guest with one address. Close it; it leaves nothing behind."""

    def __init__(
        self, responder: Responder, pod: str, ports: Iterable[int], restore: str, *, is_routed: bool = True
    ) -> None:
        """`ports` are listened on, in the guest too; `restore` is the program that silences the outside."""
        self._family = socket.AF_INET6 if ":" in pod else socket.AF_INET
        self._pod = pod
        self._responder = responder
        self._listeners: list[socket.socket] = []
        self.guest = ThreadedNamespace("guest")
        self.outside = ThreadedNamespace("outside")
        try:
            self._wire()
            self._quiet(restore)
            if is_routed:
                self.route(_EVERY[self._family])
            ports = list(ports)
            for namespace in (self.guest, self.outside):
                self._listeners += responder.listen(namespace, self._family, ports)
        except BaseException:
            self.close()
            raise
        self.probe = Probe(self.guest, responder, pod)

    def close(self) -> None:
        self._responder.forget(self._listeners)
        self.guest.close()
        self.outside.close()

    def route(self, destination: str) -> None:
        """Let the guest send there."""
        gateway = _GATEWAY[self._family]
        self.guest.run("ip", "route", "replace", destination, "via", gateway, "dev", "eth0", "onlink")

    def _wire(self) -> None:
        pod, gateway = f"{self._pod}/{_BITS[self._family]}", _GATEWAY[self._family]
        for namespace in (self.guest, self.outside):
            # No duplicate address detection: an address would be tentative, and unusable, for a second.
            namespace.call(_write, "/proc/sys/net/ipv6/conf/default/accept_dad", "0")
            namespace.call(_write, "/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1")
        # So it can reply from addresses that it has by a route alone.
        self.outside.call(_write, "/proc/sys/net/ipv6/ip_nonlocal_bind", "1")
        self.guest.run(
            *("ip", "link", "add", "eth0", "address", _MACS[0], "type", "veth"),
            *("peer", "name", "eth0", "address", _MACS[1], "netns", self.outside.path),
        )
        dad = ["nodad"] if self._family == socket.AF_INET6 else []
        self._batch(
            self.guest, "link set lo up", "link set eth0 up", f"addr add {pod} dev eth0 {' '.join(dad)}"
        )
        self._batch(
            self.outside,
            "link set lo up",
            "link set eth0 up",
            f"addr add {gateway}/{64 if dad else 32} dev eth0 {' '.join(dad)}",
            f"route add {pod} dev eth0",
            f"route add local {_EVERY[self._family]} dev lo table main",
            f"neigh add {self._pod} lladdr {_MACS[0]} dev eth0",
        )
        self._batch(self.guest, f"neigh add {gateway} lladdr {_MACS[1]} dev eth0")

    def _batch(self, namespace: ThreadedNamespace, *commands: str) -> None:
        flag = "-6" if self._family == socket.AF_INET6 else "-4"
        namespace.run("ip", flag, "-batch", "-", text="\n".join(commands) + "\n")

    def _quiet(self, restore: str) -> None:
        if restore == "nft":
            self.outside.run("nft", "-f", "-", text=_QUIET_NFT)
            return
        icmp, module = ("ipv6-icmp", "icmp6") if self._family == socket.AF_INET6 else ("icmp", "icmp")
        rules = _QUIET_IPTABLES.format(icmp=icmp, module=module.replace("icmp6", "icmpv6"))
        self.outside.run(restore, "-w", "5", text=rules)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - a kernel setting, not a file
        file.write(text)
