# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain object`: where an object of a tenant is in the super cluster, and what differs."""

import argparse
import json
from typing import Any
from urllib.parse import urlencode

from vcnode import daemons
from vcnode.core.tenants_report import ObjectPage, is_agreed, render_object
from vcnode.output import add_output
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError

_DAEMON = "vc-syncer"
# Behind `explain`.
VERB = "object"


def add_to(verbs: Any) -> None:
    """Add the second word of `vcnode explain object` to the command line of the first."""
    parser = verbs.add_parser(
        VERB,
        prog="vcnode explain object",
        description="Print where an object of a tenant is in the super cluster, what differs, why it was"
        " refused and what it waits for. Of Secrets and ConfigMaps only the paths that differ are shown."
        " Exit code 0 if both sides agree, else 1.",
        allow_abbrev=False,
    )
    parser.add_argument("kind", metavar="KIND", help="as in objects, such as Pod")
    parser.add_argument(
        "name", metavar="NAMESPACE/NAME", help="in the tenant; a NAME alone for kinds without a namespace"
    )
    parser.add_argument("--tenant", metavar="KEY", required=True, help="the tenant's cluster key")
    daemons.add_where(parser, daemons.SYNCER_STATUS, _DAEMON)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print. Raises ToolError."""
    page = _page(arguments)
    if terminal.is_document:
        terminal.document("ObjectExplanation", {"object": page.whole})
    else:
        terminal.lines(render_object(page.value, terminal.room))
    return 0 if is_agreed(page.value) else EXIT_NEGATIVE


def _page(arguments: argparse.Namespace) -> daemons.Page[ObjectPage]:
    namespace, _, name = arguments.name.rpartition("/")
    query = {"tenant": arguments.tenant, "kind": arguments.kind, "name": name}
    if namespace:
        query["namespace"] = namespace
    where = daemons.address_of(arguments)
    try:
        return daemons.ask_whole(where, f"/explain?{urlencode(query)}", ObjectPage, _DAEMON)
    except daemons.ErrorResponse as error:
        raise ToolError(f"{arguments.kind} {arguments.name}: {_reason(str(error))}") from None


def _reason(body: str) -> str:
    """The text of an error of /explain."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body
