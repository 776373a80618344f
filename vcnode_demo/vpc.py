# SPDX-License-Identifier: Apache-2.0
"""The VPCs of the demo: a bridge for each tenant, in a network namespace of their own.

The host's network has none of it: links are made between namespaces, never in the host's. Two VPCs have the
same addresses, as two tenants may choose them.
"""

import os
import shutil
import sys
from collections.abc import Mapping

from vcnode.terminal import ToolError
from vcnode_demo.guest import BOUND, SYSTEM_PATH, Guest, run

PREFIX_LENGTH = 24
ROUTER = "10.0.0.1"
# Program -> Debian package.
_PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "setpriv": "util-linux"}
_FILTERS = {"iptables": ("-t", "nat", "-S"), "nft": ("list", "ruleset")}
_LINKS = "link add vcn-b type bridge\nlink add vcn-v type veth peer name vcn-w\n"


def missing_requirement() -> str:
    """Why namespaces with packet filters cannot run here, as words after `it`; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root"
    missing = {package for name, package in _PROGRAMS.items() if not has_program(name)}
    filters = [name for name in _FILTERS if has_program(name)]
    if not filters:
        missing.add("iptables")
    if missing:
        return f"needs {' and '.join(sorted(missing))}"
    inside = [*BOUND, "unshare", "--net", "--"]
    try:
        run([*inside, "ip", "-batch", "-"], _LINKS)
        run([*inside, filters[0], *_FILTERS[filters[0]]])
    except ToolError as error:
        return f"needs what this kernel or container does not allow: {error}"
    return ""


def has_program(name: str) -> bool:
    return shutil.which(name, path=SYSTEM_PATH) is not None


class Vpcs:
    """`start`, then `join` guests to tenants' VPCs; `stop` before or after the guests."""

    def __init__(self) -> None:
        self._fabric = Guest("fabric")

    def start(self) -> None:
        """Raises ToolError."""
        self._fabric.start()
        self._fabric.up()

    def stop(self) -> None:
        self._fabric.stop()

    def make(self, name: str) -> None:
        """Make an empty VPC. Raises ToolError."""
        self._fabric.run("ip", "-batch", "-", given=f"link add {name} type bridge\nlink set {name} up\n")

    def join(self, vpc: str, guest: Guest, port: str, address: str) -> None:
        """Give a guest its one link, with an address in the VPC. Raises ToolError."""
        guest.up()
        self._fabric.run(
            "ip",
            "-batch",
            "-",
            given=f"link add {port} type veth peer name eth0 netns {guest.pid}\n"
            f"link set {port} master {vpc} up\n",
        )
        guest.run(
            "ip",
            "-batch",
            "-",
            given="link set lo up\n"
            f"addr add {address}/{PREFIX_LENGTH} dev eth0\n"
            "link set eth0 up\n"
            f"route add default via {ROUTER}\n",
        )

    def links(self) -> Mapping[str, str]:
        """The links of the fabric by name, with their hardware addresses. Raises ToolError."""
        return links_of(self._fabric.run("ip", "-o", "link"))


def host_links() -> Mapping[str, str]:
    """The same of the host's own network. Raises ToolError."""
    return links_of(run(["ip", "-o", "link"]))


def links_of(text: str) -> dict[str, str]:
    """`5: acme: <UP> mtu ... link/ether 8a:.. brd ...` and so on, one a line, as {name: address}."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        name = words[1].rstrip(":").partition("@")[0]
        if "link/ether" in words:
            found[name] = words[words.index("link/ether") + 1]
    return found
