# SPDX-License-Identifier: Apache-2.0
"""How what is ours is called, in every packet filter.

Chains are named after what they serve and never after addresses, so that a Service keeps its
chains when its cluster IP changes. iptables has 28 characters for a name: hence the short hash.
"""

import base64
import enum
import hashlib
import re

from ruleset.model import Endpoint, EndpointSet

PREFIX = "VCN-"
"""Every chain of ours begins so; nothing else is ever touched."""

SERVICES = "VCN-SERVICES"
"""The chain that OUTPUT jumps to, in nat (dispatch) and in filter (refusals)."""

NFT_TABLE = "vcnode"
"""Our own nft table, one in each family."""

MARKER_PREFIX = "VCN-MARK-"

MAX_CHAIN_CHARACTERS = 28

_MARKER_DIGITS = 16  # of the digest; a chain's name has room for 19

_CHAIN = re.compile(rf"{PREFIX}[A-Za-z0-9-]{{1,{MAX_CHAIN_CHARACTERS - len(PREFIX)}}}")


class Backend(enum.Enum):
    """A packet filter's language."""

    IPTABLES = "iptables"
    NFT = "nft"


def is_our_chain(name: str) -> bool:
    """Whether a chain of that name may be written by us."""
    return _CHAIN.fullmatch(name) is not None


def marker_chain(digest: str) -> str:
    """The empty chain that says which ruleset is installed, by the first digits of its digest.

    Whoever reads the packet filter learns it without a memory of its own: after a restart, or where
    the guest's agent is Kata's. iptables commits table by table, so each table has a marker; the
    ruleset is installed only if all agree.
    """
    return f"{MARKER_PREFIX}{digest[:_MARKER_DIGITS]}"


def is_marker(name: str) -> bool:
    """Whether the object of this name ("nat/VCN-MARK-...", "chain VCN-MARK-...") is a marker."""
    # Called for hundreds of names at each change.
    return MARKER_PREFIX in name and name.replace("/", " ").partition(" ")[2].startswith(MARKER_PREFIX)


def chain_hash(text: str) -> str:
    """The first 16 characters of the base32 of the SHA-256 of `text`, as kube-proxy names chains."""
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:10]).decode()


def endpoint_set_chain(target: EndpointSet) -> str:
    """The chain that chooses among a target's endpoints: `VCN-SVC-...`, `VCN-SVL-...` for local."""
    kind = "SVL-" if target.is_local else "SVC-"
    return f"{PREFIX}{kind}{chain_hash(target.service_port + target.protocol.value)}"


def endpoint_chain(target: EndpointSet, endpoint: Endpoint) -> str:
    """The chain of one endpoint, which affinity needs; also the name of its list of clients."""
    return f"{PREFIX}SEP-{chain_hash(f'{target.service_port}{target.protocol.value}{endpoint}')}"
