# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenants`: each tenant of vc-syncer, what it waits for, and what a person has to decide."""

import argparse
from typing import Any

from vcnode import daemons
from vcnode.core.tenants_report import (
    SyncerStatus,
    listed,
    release_command,
    render,
    render_unsynced,
)
from vcnode.output import add_output
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError

DAEMON = "vc-syncer"


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "tenants",
        help="each tenant that vc-syncer syncs: its phase, queue, held deletions and last error",
        description="Ask vc-syncer for its tenants. Exit code 0 if all are synced and no deletion is held,"
        " else 1.",
        allow_abbrev=False,
    )
    daemons.add_where(parser, daemons.SYNCER_STATUS, DAEMON)
    parser.add_argument("--tenant", metavar="KEY", help="only this one, with its objects that are not synced")
    parser.add_argument(
        "--release",
        metavar="TOKEN",
        help="print the kubectl command that releases the held deletions of this token; this tool has no"
        " credentials to run it",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print. Raises ToolError."""
    page = _ask(arguments)
    status = page.value
    if arguments.release is not None:
        command = _release(status, arguments.release)
        if terminal.is_document:
            terminal.document("ReleaseCommand", {"token": arguments.release, "command": command})
        else:
            terminal.line(command)
        return 0
    tenants = {
        source: each
        for source, each in status.tenants.items()
        if arguments.tenant in (None, each.key or source)
    }
    if arguments.tenant is not None and not tenants:
        raise ToolError(f"{arguments.tenant}: vc-syncer has no such tenant")
    if terminal.is_document:
        terminal.document("SyncedTenantList", listed(page.whole, tenants))
    else:
        terminal.lines(render(status, tenants, terminal.room, is_wide=terminal.is_wide))
        if arguments.tenant is not None:
            for each in tenants.values():
                terminal.lines(render_unsynced(each, terminal.room))
    is_good = not status.source_problem and all(each.is_good for each in tenants.values())
    return 0 if is_good else EXIT_NEGATIVE


def _release(status: SyncerStatus, token: str) -> str:
    for each in status.tenants.values():
        if any(held.token == token for held in each.held.values()):
            return release_command(each, token)
    raise ToolError(f"{token}: no deletions are held under this token; `vcnode tenants` shows those that are")


def _ask(arguments: argparse.Namespace) -> daemons.Page[SyncerStatus]:
    where = daemons.address_of(arguments)
    try:
        return daemons.ask_whole(where, "/status", SyncerStatus, DAEMON)
    except daemons.ErrorResponse as error:
        raise ToolError(f"{where}: {error}") from None
