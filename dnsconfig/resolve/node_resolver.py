# SPDX-License-Identifier: Apache-2.0
"""Parses the node's resolv.conf as the kubelet does (pkg/kubelet/network/dns, parseResolvConf, 1.34)."""

import ipaddress
import re
from dataclasses import dataclass

# Go's unicode.IsSpace. Python's str.split() also takes the four separators \x1c-\x1f.
_BLANKS = re.compile("[\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_MAX_QUOTED = 64
# What `surrogateescape` makes of bytes that are not UTF-8. The kubelet cannot send those to the runtime.
_UNDECODED = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class NodeResolver:
    """The content of `--resolv-conf`; `is_none` where the kubelet has no such file."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    is_none: bool = False


NO_NODE_RESOLVER = NodeResolver(is_none=True)


def server_problem(found: NodeResolver) -> str:
    """Why a pod with these servers may resolve no names, in words about the file; "" if nothing is wrong.

    The kubelet gives them to pods as they are. C libraries ask the first one first, so one is enough.
    """
    if found.is_none:
        return ""
    if not found.servers:
        return "it has no nameserver; pods of policy Default resolve no names"
    for server in found.servers:
        if reason := _unusable(server):
            return f"its nameserver {server[:_MAX_QUOTED]} {reason}"
    return ""


def _unusable(server: str) -> str:
    """Why a pod cannot use a server that the node may use well."""
    plain, zone, _ = server.partition("%")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return "is not an IP address"
    if zone:
        return "names an interface of the node, which a pod does not have"
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return "is a loopback address, which in a pod is the pod itself"
    if address.is_unspecified:
        return "is no server's address; in a pod it is the pod itself"
    if address.is_multicast:
        return "is a multicast address"
    # Those of IPv4 are used: a cache on each node, and servers of clouds.
    if address.version == 6 and address.is_link_local:
        return "is a link-local address, which in a pod is of another link"
    return ""


class NodeResolverError(ValueError):
    """With this file the kubelet starts no pod, whatever the pod's policy."""


def parse(text: str) -> NodeResolver:
    """Parse a resolv.conf, decoded with `surrogateescape`. Raises NodeResolverError.

    `nameserver` lines add up; the last `search` line counts; `options` lines add up, and the last
    value of an option counts. Other keywords are ignored. The kubelet writes options in random order
    (it iterates over a Go map); here they keep the order of their first occurrence.
    """
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.split("\n"):
        fields = [field for field in _BLANKS.split(line) if field]
        if not fields or fields[0].startswith("#"):
            continue
        keyword, values = fields[0], fields[1:]
        if keyword == "nameserver":
            if not values:
                raise NodeResolverError("a line `nameserver` without an address")
            servers.append(values[0])
        elif keyword == "search":
            searches = [value.removesuffix(".") for value in values if value != "."]
        elif keyword == "options":
            for value in values:
                options[value.split(":")[0]] = value
    found = NodeResolver(tuple(servers), tuple(searches), tuple(options.values()))
    if any(_UNDECODED.search(value) for value in (*found.servers, *found.searches, *found.options)):
        raise NodeResolverError("a value that is not UTF-8")
    return found
