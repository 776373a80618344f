# SPDX-License-Identifier: Apache-2.0
"""The command line of the agent. Plain options and no file: a guest has nowhere to keep one. Pure."""

import argparse
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The host, as every VM sees it (vsock(7), VMADDR_CID_HOST), and the port that the node listens on.
# Short: hybrid vsock's socket is `<path>_<port>`, and the path has 97 of 107 bytes already.
DEFAULT_NODE = "vsock:2:1033"

_SANDBOX = re.compile(rb"\x86(.)vcnode://sandbox/([A-Za-z0-9][A-Za-z0-9_.-]{0,127})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tcp:
    """`host:port`, an IPv6 address in brackets."""

    target: str


@dataclass(frozen=True, slots=True)
class Unix:
    path: str

    @property
    def target(self) -> str:
        """As `wire.dial` takes it."""
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class Vsock:
    cid: int
    port: int

    @property
    def target(self) -> str:
        """As `wire.dial` takes it."""
        return f"vsock:{self.cid}:{self.port}"


Node = Tcp | Unix | Vsock


@dataclass(frozen=True, slots=True)
class Arguments:
    node: Node
    credentials: Path
    state: Path
    resolv_conf: tuple[Path, ...]
    log_level: str


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line; ends the process with status 2 for one that is wrong."""
    parser = argparse.ArgumentParser(
        prog="vcnode-guest-agent",
        description="Keeps the Service rules of this guest as its node wants them.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--node",
        type=_node,
        default=_node(DEFAULT_NODE),
        metavar="ADDRESS",
        help=f"vsock:CID:PORT, unix:PATH or tcp:HOST:PORT (default: {DEFAULT_NODE})",
    )
    parser.add_argument(
        "--credentials",
        type=Path,
        default=Path("/run/vcnode-guest/credentials"),
        metavar="DIRECTORY",
        help="ca.crt, tls.crt and tls.key; waited for, and read anew at each attempt (default: %(default)s)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=Path("/run/vcnode-guest"),
        metavar="DIRECTORY",
        help="must not outlive this boot (default: %(default)s)",
    )
    parser.add_argument(
        "--resolv-conf",
        type=Path,
        action="append",
        metavar="FILE",
        help="what the node may write; may be given several times (default: /etc/resolv.conf)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    given = parser.parse_args(argv)
    resolv_conf = tuple(given.resolv_conf or (Path("/etc/resolv.conf"),))
    return Arguments(given.node, given.credentials, given.state, resolv_conf, given.log_level)


def _node(text: str) -> Node:
    kind, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":")
    if kind == "unix" and rest:
        return Unix(rest)
    if kind == "tcp" and host and _is_port(port):
        return Tcp(rest)
    if kind == "vsock" and host.isascii() and host.isdigit() and _is_port(port, 1 << 32):
        return Vsock(int(host), int(port))
    raise argparse.ArgumentTypeError(f"{text!r} is none of vsock:CID:PORT, unix:PATH, tcp:HOST:PORT")


def _is_port(text: str, limit: int = 1 << 16) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < limit


def sandbox_of(certificate_pem: bytes) -> str:
    """The sandbox that a certificate names, "" if it names none.

    For the hello alone, which the node compares with what TLS proved; so it is enough to find the
    name (GeneralName [6], a URI, is tagged 0x86) without reading all of X.509.
    """
    body = certificate_pem.partition(b"-----BEGIN CERTIFICATE-----")[2].partition(b"-----END")[0]
    try:
        found = _SANDBOX.search(base64.b64decode(body))
    except binascii.Error:
        return ""
    if found is None or len(found[0]) < 2 + found[1][0]:
        return ""
    uri = found[0][2 : 2 + found[1][0]]
    return uri.removeprefix(b"vcnode://sandbox/").decode()
