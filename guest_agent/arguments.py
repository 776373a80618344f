# SPDX-License-Identifier: Apache-2.0
"""The agent's command line. It has no configuration file: a guest has no place for one."""

import argparse
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemonkit.version import VERSION

# The host (vsock(7), VMADDR_CID_HOST), and the port that kata-bridge listens on. The port is short:
# hybrid vsock's socket is `<path>_<port>`, and the path takes 97 of 107 bytes.
DEFAULT_NODE = "vsock:2:1033"

_SANDBOX = re.compile(rb"\x86(.)vcnode://sandbox/([A-Za-z0-9][A-Za-z0-9_.-]{0,127})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """`host:port`, an IPv6 address in brackets."""

    target: str


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: str

    @property
    def target(self) -> str:
        """As `connection.dial` takes it."""
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class VsockAddress:
    cid: int
    port: int

    @property
    def target(self) -> str:
        """As `connection.dial` takes it."""
        return f"vsock:{self.cid}:{self.port}"


NodeAddress = TcpAddress | UnixAddress | VsockAddress


@dataclass(frozen=True, slots=True)
class Arguments:
    node: NodeAddress
    credentials: Path
    state: Path
    resolv_conf: tuple[Path, ...]
    log_level: str


def command_parser() -> argparse.ArgumentParser:
    """The options; the man page is made from them."""
    parser = argparse.ArgumentParser(
        prog="vcnode-guest-agent",
        description="Installs the Service rules of this guest and repairs them with its node.",
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
        help="ca.crt, tls.crt and tls.key; read at each attempt, which waits for them (default: %(default)s)",
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
        help="a file that the node may write; repeatable (default: /etc/resolv.conf)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    return parser


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line. Exits with status 2 for an invalid one."""
    parsed = command_parser().parse_args(argv)
    resolv_conf = tuple(parsed.resolv_conf or (Path("/etc/resolv.conf"),))
    return Arguments(parsed.node, parsed.credentials, parsed.state, resolv_conf, parsed.log_level)


def _node(text: str) -> NodeAddress:
    kind, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":")
    if kind == "unix" and rest:
        return UnixAddress(rest)
    if kind == "tcp" and host and _is_port(port):
        return TcpAddress(rest)
    if kind == "vsock" and host.isascii() and host.isdigit() and _is_port(port, 1 << 32):
        return VsockAddress(int(host), int(port))
    raise argparse.ArgumentTypeError(f"{text!r} is not vsock:CID:PORT, unix:PATH or tcp:HOST:PORT")


def _is_port(text: str, limit: int = 1 << 16) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < limit


def sandbox_of(certificate_pem: bytes) -> str:
    """The sandbox that a certificate names; "" if it names none.

    Only the hello needs it, and the node compares it with the certificate that TLS verified. So it is
    enough to find the URI (GeneralName [6], tag 0x86) without parsing X.509.
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
