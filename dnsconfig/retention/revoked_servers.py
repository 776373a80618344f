# SPDX-License-Identifier: Apache-2.0
"""What is left of a resolv.conf when the addresses of the network's server are not its own any more. Pure.

It is made of what the pod has, not decided anew: what else decides (the node's file, the cluster
domain) may be unknown at this moment, and an address that can be another tenant's has to go all the
same. An author's server that did not fit beside the network's stays out.

Without any server glibc, musl and Go ask 127.0.0.1, which is the pod itself. For a pod in
the host's network it is the host, or whoever listens there: such a pod is given a server that is none.
"""

from collections.abc import Collection

from dnsconfig.cluster.objects import SERVICE_PREFIX
from dnsconfig.cluster.state import KUBE_SYSTEM
from dnsconfig.resolve.network import ClusterIps, Origin, canonical

# RFC 6666, the discard-only block: an address like any other to whoever reads the file, and of nobody.
NOBODY = "100::1"

_NAMESERVER = "nameserver"


def is_lost(had: Collection[str], now: ClusterIps) -> bool:
    """Whether one of the cluster IPs that a pod has is not its network's Service's any more."""
    return not set(had) <= set(now.addresses)


def bare(text: str, lost: Origin, max_bytes: int, *, is_host_network: bool) -> str:
    """The text without the servers that are lost, and with a line on top that says why.

    The line has less than 255 characters, as musl reads lines (a network's name has 54 at most), and
    is left out where the whole would be too large.
    """
    lines = [line for line in text.split("\n") if not _is_of(line, lost.cluster_ips)]
    if is_host_network and not any(line.startswith(_NAMESERVER) for line in lines):
        lines.insert(0, f"{_NAMESERVER} {NOBODY}")
    left = "\n".join(lines)
    name = lost.network
    why = (
        f"# The DNS server of network {name} (Service {KUBE_SYSTEM}/{SERVICE_PREFIX}{name}) is gone, "
        "and its address may be somebody else's by now.\n"
    )
    explained = why + left
    return explained if len(explained.encode()) <= max_bytes else left


def _is_of(line: str, lost: Collection[str]) -> bool:
    """Whether a line names one of these servers: the network's, or an author's who names the same."""
    fields = line.split()
    return fields[:1] == [_NAMESERVER] and not set(canonical(fields[1:2])).isdisjoint(lost)
