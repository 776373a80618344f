# SPDX-License-Identifier: Apache-2.0
"""`vcnode guests`: each guest of this node, its channel and whether its rules are current; and the pods
that the start gate blocks, and why."""

import argparse
from typing import Any

import msgspec

from vcnode import daemons
from vcnode.core.guests_report import BridgeStatus, render, render_blocked
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError

_DAEMON = "kata-bridge"


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "guests",
        help="each guest of this node, its channel and generation, and why it is behind; blocked pods",
        description="Ask kata-bridge for its guests, and for the pods that its start gate blocks. "
        "Exit code 0 if all guests are current and no pod is blocked, else 1.",
        allow_abbrev=False,
    )
    daemons.add_where(parser, daemons.BRIDGE_STATUS, _DAEMON)
    parser.add_argument("--tenant", metavar="KEY", help="only this tenant's guests")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print. Raises ToolError."""
    status = _ask(arguments)
    guests = [guest for guest in status.guests if arguments.tenant in (None, guest.tenant)]
    pods = status.start_gate.blocked if status.start_gate else ()
    blocked = [pod for pod in pods if arguments.tenant in (None, pod.tenant)]
    is_good = (
        status.is_synced and all(guest.state in ("current", "noRuleset") for guest in guests) and not blocked
    )
    if arguments.json:
        terminal.json(
            {
                "isSynced": status.is_synced,
                "unmanaged": status.unmanaged,
                "problems": status.problems,
                "guests": [msgspec.to_builtins(guest) for guest in guests],
                "blocked": [msgspec.to_builtins(pod) for pod in blocked],
            }
        )
    else:
        terminal.lines(render(status, guests) + render_blocked(blocked))
    return 0 if is_good else EXIT_NEGATIVE


def _ask(arguments: argparse.Namespace) -> BridgeStatus:
    where = daemons.address_of(arguments)
    try:
        return daemons.ask(where, "/status", BridgeStatus, _DAEMON)
    except daemons.ErrorResponse as error:
        raise ToolError(f"{where}: {error}") from None
