# SPDX-License-Identifier: Apache-2.0
"""`vcnode log-level DAEMON [LEVEL]`: show or change the log level of a daemon that runs."""

import argparse
from typing import Any

from daemonkit import logs
from daemonkit.status.server import ListenAddress
from vcnode import daemons
from vcnode.core.status_report import LogLevel
from vcnode.output import add_output
from vcnode.terminal import Terminal, ToolError


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "log-level",
        help="show or change the log level of a daemon that runs",
        description="A change needs root or the daemon's user, and the unix socket. It lasts until the daemon"
        " restarts or gets SIGHUP; `logging.level` in its configuration lasts.",
        allow_abbrev=False,
    )
    parser.add_argument("daemon", choices=daemons.STATUS_SOCKETS, metavar="DAEMON", help="%(choices)s")
    parser.add_argument("level", choices=logs.LEVELS, nargs="?", metavar="LEVEL", help="%(choices)s")
    daemons.add_where(parser, None, "DAEMON")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask the daemon, with a level for the change to it."""
    daemon: str = arguments.daemon
    where: ListenAddress = arguments.address or arguments.socket or daemons.STATUS_SOCKETS[daemon]
    path, method = "/log-level", "GET"
    if arguments.level is not None:
        path, method = f"/log-level?level={arguments.level}", "PUT"
    try:
        found = daemons.ask_whole(where, path, LogLevel, daemon, method)
    except daemons.ErrorResponse as error:
        raise ToolError(f"{daemon}: {error}") from None
    if terminal.is_document:
        terminal.document("LogLevel", {"daemon": daemon, **found.whole})
    else:
        terminal.line(f"{daemon}: {found.value.text}")
    return 0
