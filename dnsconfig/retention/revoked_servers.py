# SPDX-License-Identifier: Apache-2.0
"""Removes revoked server addresses from a resolv.conf.

A pod's text is reduced instead of decided anew: other inputs (the node's file, the cluster domain) may be
unknown just then. An address that may be another tenant's must still be removed. An author's server that was
truncated for the network's does not come in.

Without any server glibc, musl and Go ask 127.0.0.1, which is the pod itself. For a pod in the host's
network it is the host, so that such a pod gets a server that discards everything.
"""

from collections.abc import Collection

from dnsconfig.cluster.objects import SERVICE_PREFIX
from dnsconfig.cluster.state import KUBE_SYSTEM
from dnsconfig.resolve.network import ClusterIps, RevocableAddresses, canonical_addresses

# RFC 6666, the discard-only block: a valid address without a host.
DISCARD_ADDRESS = "100::1"

_NAMESERVER = "nameserver"


def has_revoked(applied: Collection[str], now: ClusterIps) -> bool:
    """Whether the network's Service has given up one of the cluster IPs that a pod has."""
    return not set(applied) <= set(now.addresses)


def without_revoked(text: str, revoked: RevocableAddresses, max_bytes: int, *, is_host_network: bool) -> str:
    """The text without the revoked servers, under a comment with the reason.

    The comment has less than 255 characters, musl's limit for a line (a network's name has 54 at
    most), and is left out where the text would exceed `max_bytes`.
    """
    lines = [line for line in text.split("\n") if not _names_any(line, revoked.cluster_ips)]
    if is_host_network and not any(line.startswith(_NAMESERVER) for line in lines):
        lines.insert(0, f"{_NAMESERVER} {DISCARD_ADDRESS}")
    reduced = "\n".join(lines)
    network = revoked.network
    comment = (
        f"# The DNS server of network {network} (Service {KUBE_SYSTEM}/{SERVICE_PREFIX}{network}) is gone, "
        "and its address may be another Service's by now.\n"
    )
    explained = comment + reduced
    return explained if len(explained.encode()) <= max_bytes else reduced


def _names_any(line: str, servers: Collection[str]) -> bool:
    """Whether a line names one of these servers, the network's or the author's own."""
    fields = line.split()
    return fields[:1] == [_NAMESERVER] and not set(canonical_addresses(fields[1:2])).isdisjoint(servers)
