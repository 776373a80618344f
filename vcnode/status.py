# SPDX-License-Identifier: Apache-2.0
"""`vcnode status`: whether each daemon of this node is ready, and its status."""

import argparse
from typing import Any

from daemonkit.status.server import ListenAddress
from vcnode import daemons
from vcnode.core import status_report
from vcnode.output import add_output
from vcnode.terminal import EXIT_FAILED, EXIT_NEGATIVE, Terminal


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
        "--alive",
        action="store_true",
        help="ask for /healthz alone, as a liveness probe does: whether each daemon answers, ready or not",
    )
    daemons.add_addresses(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print each daemon, also those that do not answer."""
    if arguments.alive:
        return _run_alive(daemons.addresses_of(arguments), terminal)
    answers = [(where, daemons.ask_report(where)) for where in daemons.addresses_of(arguments)]
    is_ready = all(
        isinstance(answer, status_report.DaemonReport) and answer.is_ready for _, answer in answers
    )
    if terminal.is_document:
        items = [_item(daemons.name_of(where), answer) for where, answer in answers]
        terminal.document("DaemonStatusList", {"items": items})
    else:
        _write_lines(answers, terminal)
    if any(isinstance(answer, str) for _, answer in answers):
        return EXIT_FAILED
    return 0 if is_ready else EXIT_NEGATIVE


def _run_alive(addresses: list[ListenAddress], terminal: Terminal) -> int:
    problems = {daemons.name_of(where): daemons.ask_alive(where) for where in addresses}
    if terminal.is_document:
        items = [{"address": name, "isAlive": not why, "problem": why} for name, why in problems.items()]
        terminal.document("DaemonLivenessList", {"items": items})
    else:
        for name, why in problems.items():
            terminal.line(f"{name}: {why or 'alive'}")
    return EXIT_FAILED if any(problems.values()) else 0


def _write_lines(
    answers: list[tuple[ListenAddress, status_report.DaemonReport | str]], terminal: Terminal
) -> None:
    for number, (where, answer) in enumerate(answers):
        if number:
            terminal.line()
        if isinstance(answer, str):
            terminal.lines(status_report.render_silent(daemons.name_of(where), answer, terminal.room))
        else:
            now_s = terminal.now.timestamp()
            terminal.lines(status_report.render(answer, daemons.name_of(where), now_s, terminal.room))


def _item(where: str, answer: status_report.DaemonReport | str) -> dict[str, object]:
    if isinstance(answer, str):
        return {"address": where, "isReady": False, "problem": answer}
    return {
        "address": where,
        "isReady": answer.is_ready,
        "readyz": list(answer.why),
        "status": answer.whole,
    }
