# SPDX-License-Identifier: Apache-2.0
"""`vcnode status`: whether each daemon of this node is ready, and its status."""

import argparse
from pathlib import Path
from typing import Any

from daemonkit.status.server import ListenAddress, StatusError, fetch
from vcnode.core import status_report
from vcnode.daemons import BRIDGE_SOCKET, SOCKET_DIRECTORY, TIMEOUT_S, loopback
from vcnode.output import add_output
from vcnode.terminal import EXIT_FAILED, EXIT_NEGATIVE, Terminal, ToolError


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "status",
        help="whether each daemon on this node is ready, and its status",
        description="Ask each daemon for /readyz and /status. Exit code 0 if all are ready, 1 if one is not,"
        " 3 if one does not answer.",
        allow_abbrev=False,
    )
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
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print each daemon, also those that do not answer."""
    addresses: list[ListenAddress] = [*(arguments.socket or ()), *(arguments.address or ())]
    answers = [(where, _ask(where)) for where in addresses or _sockets(SOCKET_DIRECTORY)]
    is_ready = all(
        isinstance(answer, status_report.DaemonReport) and answer.is_ready for _, answer in answers
    )
    if terminal.is_document:
        items = [_item(_name(where), answer) for where, answer in answers]
        terminal.document("DaemonStatusList", {"items": items})
    else:
        _write_lines(answers, terminal)
    if any(isinstance(answer, str) for _, answer in answers):
        return EXIT_FAILED
    return 0 if is_ready else EXIT_NEGATIVE


def _write_lines(
    answers: list[tuple[ListenAddress, status_report.DaemonReport | str]], terminal: Terminal
) -> None:
    for number, (where, answer) in enumerate(answers):
        if number:
            terminal.line()
        if isinstance(answer, str):
            terminal.lines(status_report.render_silent(_name(where), answer, terminal.room))
        else:
            now_s = terminal.now.timestamp()
            terminal.lines(status_report.render(answer, _name(where), now_s, terminal.room))


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


def _ask(where: ListenAddress) -> status_report.DaemonReport | str:
    """A daemon's report, or why there is none."""
    try:
        return status_report.read(fetch(where, "/readyz", TIMEOUT_S), fetch(where, "/status", TIMEOUT_S)[1])
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:.0f} s; the daemon is stopped or stuck"
    except ConnectionRefusedError:
        return "connection refused; the daemon was killed or has not started"
    except OSError as error:
        return error.strerror or type(error).__name__
    except (StatusError, status_report.ReportError) as error:
        return str(error)


def _item(where: str, answer: status_report.DaemonReport | str) -> dict[str, object]:
    if isinstance(answer, str):
        return {"address": where, "isReady": False, "problem": answer}
    return {
        "address": where,
        "isReady": answer.is_ready,
        "readyz": list(answer.why),
        "status": answer.whole,
    }


def _name(where: ListenAddress) -> str:
    return str(where) if isinstance(where, Path) else f"{where[0]}:{where[1]}"
