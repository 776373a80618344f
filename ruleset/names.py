# SPDX-License-Identifier: Apache-2.0
"""The names of our chains and tables.

Chains are named after Service ports and never after addresses, so a Service keeps its chains when its
cluster IP changes. iptables has 28 characters for a name, hence the short hash.
"""

import base64
import enum
import hashlib
import re

from ruleset.model import Endpoint, EndpointSet

PREFIX = "VCN-"
"""All our chains begin so; others are never touched."""

SERVICES = "VCN-SERVICES"
"""The chain that OUTPUT jumps to: in nat it dispatches, in filter it rejects."""

NFT_TABLE = "vcnode"
"""Our nft table, one in each family."""

MARKER_PREFIX = "VCN-MARK-"

MAX_CHAIN_CHARACTERS = 28

_MARKER_DIGITS = 16  # of the digest; a chain's name has room for 19

_CHAIN = re.compile(rf"{PREFIX}[A-Za-z0-9-]{{1,{MAX_CHAIN_CHARACTERS - len(PREFIX)}}}")


class Backend(enum.Enum):
    """A packet filter."""

    IPTABLES = "iptables"
    NFT = "nft"


def is_our_chain(name: str) -> bool:
    return _CHAIN.fullmatch(name) is not None


def marker_chain(digest: str) -> str:
    """The empty chain that names the installed ruleset by the first digits of its digest.

    A reader of the packet filter needs no saved state to know the ruleset: after a restart, or in a
    guest with Kata's own agent. iptables commits table by table, so each table has a marker; the
    ruleset is installed only if all of them agree.
    """
    return f"{MARKER_PREFIX}{digest[:_MARKER_DIGITS]}"


def is_marker(name: str) -> bool:
    """Whether the object of this name ("nat/VCN-MARK-...", "chain VCN-MARK-...") is a marker."""
    # Called for hundreds of names at each change.
    return MARKER_PREFIX in name and name.replace("/", " ").partition(" ")[2].startswith(MARKER_PREFIX)


def chain_hash(text: str) -> str:
    """The first 16 characters of the base32 of the SHA-256 of `text`, as in kube-proxy's chain names."""
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:10]).decode()


def endpoint_set_chain(endpoints: EndpointSet) -> str:
    """The chain that chooses among the endpoints: `VCN-SVC-...`, `VCN-SVL-...` for local ones."""
    kind = "SVL-" if endpoints.is_local else "SVC-"
    return f"{PREFIX}{kind}{chain_hash(endpoints.service_port + endpoints.protocol.value)}"


def endpoint_chain(endpoints: EndpointSet, endpoint: Endpoint) -> str:
    """The chain of one endpoint, which affinity needs; its list of clients has the same name."""
    return f"{PREFIX}SEP-{chain_hash(f'{endpoints.service_port}{endpoints.protocol.value}{endpoint}')}"
