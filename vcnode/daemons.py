# SPDX-License-Identifier: Apache-2.0
"""Reads pages of this node's status servers, as values."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from daemonkit.status.server import ListenAddress, StatusError, fetch
from vcnode.core import status_report
from vcnode.terminal import ToolError

SOCKET_DIRECTORY = Path("/run/vcnode")
# kata-bridge's gRPC interface: it serves no status pages, though it stands among sockets that do.
BRIDGE_SOCKET = SOCKET_DIRECTORY / "kata-bridge.sock"
BRIDGE_STATUS = SOCKET_DIRECTORY / "kata-bridge-status.sock"
# Daemons without privileges have a directory each: none can take the name of another's socket.
PROXY_STATUS = SOCKET_DIRECTORY / "kubeproxy-ext" / "status.sock"
DNS_STATUS = SOCKET_DIRECTORY / "dnsconfig" / "status.sock"
SYNCER_STATUS = SOCKET_DIRECTORY / "vc-syncer" / "status.sock"
# The status sockets of all daemons, where packages have them.
STATUS_SOCKETS = {
    "vn-agent": SOCKET_DIRECTORY / "vn-agent" / "status.sock",
    "kata-bridge": BRIDGE_STATUS,
    "kubeproxy-ext": PROXY_STATUS,
    "dnsconfig": DNS_STATUS,
    "vc-syncer": SYNCER_STATUS,
    "vc-operator": SOCKET_DIRECTORY / "vc-operator" / "status.sock",
    "dnsconfig-webhook": SOCKET_DIRECTORY / "dnsconfig-webhook" / "status.sock",
}
# A daemon answers from its memory; one that takes longer is in trouble.
TIMEOUT_S = 3.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A daemon's page: the fields that a verb reads, and the whole of it as JSON values."""

    value: T
    whole: dict[str, Any]


class ErrorResponse(Exception):  # noqa: N818 - an answer that is not the page
    """The daemon answered with another code than 200; the text is the answer's body."""


def add_where(parser: argparse.ArgumentParser, default: Path | None, daemon: str) -> None:
    """Add `--socket` and `--address`, which exclude each other; `address_of` reads them.

    Without a default each daemon has the one of `STATUS_SOCKETS`.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--socket",
        type=Path,
        default=default,
        metavar="PATH",
        help=f"status socket of {daemon} (default: {default or f'{SOCKET_DIRECTORY}/{daemon}/status.sock'})",
    )
    where.add_argument(
        "--address",
        type=loopback,
        metavar="HOST:PORT",
        help=f"status address of {daemon} on loopback, instead of a socket",
    )


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """Add `--socket` and `--address` for any number of daemons; `addresses_of` reads them."""
    parser.add_argument(
        "--socket",
        type=Path,
        nargs="+",
        action="extend",
        metavar="PATH",
        help=f"status sockets to ask (default: {SOCKET_DIRECTORY}/*.sock and */status.sock)",
    )
    parser.add_argument(
        "--address",
        type=loopback,
        action="append",
        metavar="HOST:PORT",
        help="a status address on loopback, instead of a socket",
    )


def addresses_of(arguments: argparse.Namespace) -> list[ListenAddress]:
    """The values of `--socket` and `--address`, or all status sockets of this node. Raises ToolError."""
    return [*(arguments.socket or ()), *(arguments.address or ())] or [*_sockets(SOCKET_DIRECTORY)]


def _sockets(directory: Path) -> list[Path]:
    try:
        every = [path for path in directory.iterdir() if path.suffix == ".sock"]
        # Each daemon without privileges has a directory of its own.
        own = [path / "status.sock" for path in directory.iterdir() if (path / "status.sock").exists()]
        found = sorted(path for path in (*every, *own) if path.name != BRIDGE_SOCKET.name)
    except FileNotFoundError:
        found = []
    except OSError as error:
        raise ToolError(f"{directory}: {error.strerror}") from None
    if not found:
        raise ToolError(
            f"no daemon runs here: {directory} has no *.sock or */status.sock (another place: --socket PATH)"
        )
    return found


def name_of(where: ListenAddress) -> str:
    """The address as operators write it: a path, or HOST:PORT."""
    return str(where) if isinstance(where, Path) else f"{where[0]}:{where[1]}"


def address_of(arguments: argparse.Namespace) -> ListenAddress:
    """The value of `--address` or `--socket`."""
    address: ListenAddress = arguments.address or arguments.socket
    return address


def loopback(text: str) -> tuple[str, int]:
    """`HOST:PORT`, for argparse."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def ask_report(where: ListenAddress) -> status_report.DaemonReport | str:
    """A daemon's /readyz and /status, or why there is no answer."""
    try:
        return status_report.read(fetch(where, "/readyz", TIMEOUT_S), fetch(where, "/status", TIMEOUT_S)[1])
    except (OSError, StatusError, status_report.ReportError) as error:
        return _no_answer(error)


def ask_alive(where: ListenAddress) -> str:
    """Empty if a daemon answers for /healthz, else why not."""
    try:
        code, _ = fetch(where, "/healthz", TIMEOUT_S)
    except (OSError, StatusError) as error:
        return _no_answer(error)
    return "" if code == 200 else f"/healthz answers {code}"


def _no_answer(error: OSError | StatusError | status_report.ReportError) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {TIMEOUT_S:.0f} s; the daemon is stopped or stuck"
        case ConnectionRefusedError():
            return "connection refused; the daemon was killed or has not started"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return str(error)


def ask(where: ListenAddress, path: str, kind: type[T], daemon: str) -> T:
    """The fields of a page of `daemon`; errors as in `ask_whole`."""
    return ask_whole(where, path, kind, daemon).value


def ask_whole(where: ListenAddress, path: str, kind: type[T], daemon: str, method: str = "GET") -> Page[T]:
    """A page of `daemon`; with PUT, after the change that `path` has.

    Raises `ErrorResponse`, and ToolError if nothing answers, or something else than that daemon.
    """
    name = name_of(where)
    try:
        code, body = fetch(where, path, TIMEOUT_S, method)
        if code != 200:
            raise ErrorResponse(body.decode("utf-8", "replace").strip())
        answer = msgspec.json.decode(body, type=kind)
        whole = msgspec.json.decode(body, type=dict[str, Any])
    except TimeoutError:
        raise ToolError(f"{name}: no answer within {TIMEOUT_S:.0f} s; {daemon} is stopped or stuck") from None
    except FileNotFoundError as error:
        hint = "`status.socket` in its configuration sets this path"
        raise ToolError(f"{name}: {error.strerror}; does {daemon} run here? {hint}") from None
    except OSError as error:
        raise ToolError(f"{name}: {error.strerror or error}; does {daemon} run here?") from None
    except (StatusError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ToolError(f"{name}: this is not an answer of {daemon}") from None
    actual: Any = getattr(answer, "daemon", daemon)
    if actual != daemon:
        raise ToolError(f"{name}: this is {actual}, not {daemon}")
    return Page(answer, whole)
