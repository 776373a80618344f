# SPDX-License-Identifier: Apache-2.0
"""`vcnode guests`: each guest of this node, its channel and whether its rules are current; and the pods
that the start gate blocks, and why."""

import argparse
from typing import Any

from vcnode import daemons
from vcnode.core.guests_report import BridgeStatus, listed, render, render_blocked
from vcnode.output import add_output
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
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print. Raises ToolError."""
    page = _ask(arguments)
    status = page.value
    guests = [guest for guest in status.guests if arguments.tenant in (None, guest.tenant)]
    pods = status.start_gate.blocked if status.start_gate else ()
    blocked = [pod for pod in pods if arguments.tenant in (None, pod.tenant)]
    is_good = (
        status.is_synced and all(guest.state in ("current", "noRuleset") for guest in guests) and not blocked
    )
    if terminal.is_document:
        terminal.document("GuestList", listed(page.whole, arguments.tenant))
    else:
        room, is_wide = terminal.room, terminal.is_wide
        terminal.lines(render(status, guests, room, is_wide=is_wide))
        terminal.lines(render_blocked(blocked, room, is_wide=is_wide))
    return 0 if is_good else EXIT_NEGATIVE


def _ask(arguments: argparse.Namespace) -> daemons.Page[BridgeStatus]:
    where = daemons.address_of(arguments)
    try:
        return daemons.ask_whole(where, "/status", BridgeStatus, _DAEMON)
    except daemons.ErrorResponse as error:
        raise ToolError(f"{where}: {error}") from None
