# SPDX-License-Identifier: Apache-2.0
"""Where this node's daemons are asked, and how: pages of their status servers, as values."""

import argparse
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from daemonkit.status.server import Address, StatusError, fetch
from vcnode.terminal import ToolError

SOCKET_DIRECTORY = Path("/run/vcnode")
# kata-bridge's own interface: gRPC, no status pages. It stands among the sockets that have some.
BRIDGE_SOCKET = SOCKET_DIRECTORY / "kata-bridge.sock"
BRIDGE_STATUS = SOCKET_DIRECTORY / "kata-bridge-status.sock"
# Those without privileges have a directory each: none can take another's name, or kata-bridge's.
PROXY_STATUS = SOCKET_DIRECTORY / "kubeproxy-ext" / "status.sock"
DNS_STATUS = SOCKET_DIRECTORY / "dnsconfig" / "status.sock"
# A daemon answers from its memory; one that takes longer is in trouble, which is the answer.
TIMEOUT_S = 3.0

T = TypeVar("T")


class ErrorResponse(Exception):  # noqa: N818 - an answer that is not the page
    """The daemon answered with another code than 200; the text is what it says."""


def add_where(parser: argparse.ArgumentParser, default: Path, daemon: str) -> None:
    """Add `--socket` and `--address`, of which one may be given: `address_of` reads them."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--socket",
        type=Path,
        default=default,
        metavar="PATH",
        help=f"status socket of {daemon} (default: {default})",
    )
    where.add_argument(
        "--address", type=loopback, metavar="HOST:PORT", help=f"status of {daemon} on loopback instead"
    )


def address_of(arguments: argparse.Namespace) -> Address:
    """What `add_where` was given."""
    address: Address = arguments.address or arguments.socket
    return address


def loopback(text: str) -> tuple[str, int]:
    """`HOST:PORT`, for argparse."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def ask(where: Address, path: str, kind: type[T], daemon: str) -> T:
    """A page of `daemon` as a value.

    Raises `Refusal`, and ToolError when nobody answers or what answers is not that daemon.
    """
    name = str(where) if isinstance(where, Path) else f"{where[0]}:{where[1]}"
    try:
        code, body = fetch(where, path, TIMEOUT_S)
        if code != 200:
            raise ErrorResponse(body.decode("utf-8", "replace").strip())
        answer = msgspec.json.decode(body, type=kind)
    except TimeoutError:
        raise ToolError(f"{name}: nothing within {TIMEOUT_S:.0f} s; is {daemon} stopped or stuck?") from None
    except FileNotFoundError as error:
        hint = "`status.socket` in its configuration says where it can be asked"
        raise ToolError(f"{name}: {error.strerror}; does {daemon} run here? {hint}") from None
    except OSError as error:
        raise ToolError(f"{name}: {error.strerror or error}; does {daemon} run here?") from None
    except (StatusError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ToolError(f"{name}: what it answers is not {daemon}'s") from None
    said: Any = getattr(answer, "daemon", daemon)
    if said != daemon:
        raise ToolError(f"{name}: this is {said}, not {daemon}")
    return answer
