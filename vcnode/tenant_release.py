# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenant release`: remove the tenants that vn-agent retains though their source lacks them."""

import argparse
import os
import signal
import socket
import struct
import time
from pathlib import Path
from typing import Any

import msgspec

from vcnode import daemons
from vcnode.output import add_output
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError

# Earlier examples have the second.
AGENT_STATUS = (
    daemons.SOCKET_DIRECTORY / "vn-agent" / "status.sock",
    daemons.SOCKET_DIRECTORY / "vn-agent.sock",
)
# vn-agent handles a signal at once, and builds a registry of thousands of tenants within a second.
RELEASE_S = 10.0
_POLL_S = 0.1
_CREDENTIALS = struct.Struct("3i")  # struct ucred, unix(7): pid, uid, gid


class _Retained(msgspec.Struct, rename="camel"):
    tenants: tuple[str, ...] = ()
    client_lists: tuple[str, ...] = ()


class _Source(msgspec.Struct):
    retained: _Retained = msgspec.field(default_factory=_Retained)


class _DaemonStatus(msgspec.Struct):
    daemon: str
    sources: dict[str, _Source] = {}

    @property
    def retained(self) -> tuple[str, ...]:
        """A line for each retained object."""
        found = self.found
        return (
            *(f"tenant {key}: retained, missing from its source" for key in found.tenants),
            *(
                f"vn-agent-clients of tenant {key}: retained, missing from its source"
                for key in found.client_lists
            ),
        )

    @property
    def found(self) -> _Retained:
        return self.sources["tenants"].retained if "tenants" in self.sources else _Retained()


def add_to(verbs: Any) -> None:
    """Add the verb to those of `vcnode tenant`."""
    release = verbs.add_parser(
        "release",
        help="remove the tenants that vn-agent retains though their source lacks them",
        description="Without --yes it prints these tenants and changes nothing.",
        allow_abbrev=False,
    )
    release.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help=f"status socket of vn-agent (default: {AGENT_STATUS[0]})",
    )
    release.add_argument("--yes", action="store_true", help="remove them, and end their live connections")
    add_output(release)
    release.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Signal the daemon behind the socket, and wait until it has removed the tenants."""
    where: Path = arguments.socket or next((each for each in AGENT_STATUS if each.exists()), AGENT_STATUS[0])
    status = _ask(where)
    retained = status.retained
    is_released = bool(arguments.yes and retained)
    if not terminal.is_document:
        terminal.lines(retained or ("no tenant is retained",))
    if is_released:
        _release(where)
    if terminal.is_document:
        terminal.document("RetainedTenantList", _document(status.found, is_released=is_released))
    elif is_released:
        terminal.line(f"removed: {len(retained)}; their live connections have ended")
    elif retained:
        terminal.line("nothing removed: run it again with --yes, or restore the tenants in their source")
    return 0 if is_released or not retained else EXIT_NEGATIVE


def _document(retained: _Retained, *, is_released: bool) -> dict[str, object]:
    """`clientLists` are tenants without their ConfigMap vn-agent-clients."""
    return {
        "isReleased": is_released,
        "items": [{"tenant": key} for key in retained.tenants],
        "clientLists": list(retained.client_lists),
    }


def _release(where: Path) -> None:
    """Raises ToolError if tenants are still retained after `RELEASE_S`."""
    _signal(where)
    ends_at = time.monotonic() + RELEASE_S
    while _ask(where).retained:
        if time.monotonic() > ends_at:
            raise ToolError(f"{where}: vn-agent still retains tenants; see its log")
        time.sleep(_POLL_S)


def _ask(where: Path) -> _DaemonStatus:
    try:
        return daemons.ask(where, "/status", _DaemonStatus, "vn-agent")
    except daemons.ErrorResponse as error:
        raise ToolError(f"{where}: {error}") from None


def _signal(where: Path) -> None:
    """Send SIGUSR1 to the process that listens. Raises ToolError.

    The kernel names that process for the socket. The pid in /status is another one if vn-agent runs in
    a container.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(where))
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, _, _ = _CREDENTIALS.unpack(credentials)
        if pid <= 0:
            raise ToolError(f"{where}: vn-agent runs in another pid namespace; send it SIGUSR1 there")
        os.kill(pid, signal.SIGUSR1)
    except OSError as error:
        raise ToolError(f"{where}: {error.strerror or error}") from None
