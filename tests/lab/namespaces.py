# SPDX-License-Identifier: Apache-2.0
"""Network namespaces, programs and sockets in them, and links between them.

Everything gets a name with a random prefix, so that runs do not collide, and is removed when the
`Lab` ends, also after a failure: programs that still run are killed, by their ids, and then the namespaces.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.netns import DEADLINE_S, NamedNamespace

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class ProgramError(Exception):
    """A program ended with an error; the text has its output."""


@dataclass(frozen=True, slots=True)
class LabNamespace(NamedNamespace):
    """A network namespace with its loopback up."""

    environment: Mapping[str, str]

    def command(self, *argv: str) -> list[str]:
        return [*self.enter, *argv]

    def run(self, *argv: str, stdin: str = "") -> str:
        """The output of `argv`. Raises `ProgramError`."""
        done = subprocess.run(
            self.command(*argv),
            input=stdin,
            capture_output=True,
            text=True,
            env=dict(self.environment),
            timeout=DEADLINE_S,
            check=False,
        )
        if done.returncode:
            raise ProgramError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout


class Lab:
    """Makes namespaces; a context manager, since it must remove them."""

    def __init__(self, directory: Path) -> None:
        """`directory` gets the lock of legacy iptables: /run's is one for all namespaces."""
        self._prefix = f"vcl{secrets.token_hex(3)}"
        self._stack = ExitStack()
        self._environment = {"PATH": SYSTEM_PATH, "XTABLES_LOCKFILE": str(directory / "xtables.lock")}
        self._links = 0

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def namespace(self, name: str) -> LabNamespace:
        """A new namespace; `name` is unique in the test."""
        made = LabNamespace(f"{self._prefix}-{name}", self._environment)
        _ip("netns", "add", made.name)
        self._stack.callback(_delete, made)
        made.run("ip", "link", "set", "lo", "up")
        return made

    def link(
        self, one: LabNamespace, other: LabNamespace, ones: Sequence[str], others: Sequence[str]
    ) -> None:
        """A link between two namespaces, with addresses (`10.1.0.2/24`) at its ends.

        The first address of each family is the other end's default route. IPv6 addresses can be used
        at once, without duplicate address detection.
        """
        device = f"eth{self._links}"
        self._links += 1
        _ip(
            "link",
            "add",
            device,
            "netns",
            one.name,
            "type",
            "veth",
            "peer",
            "name",
            device,
            "netns",
            other.name,
        )
        ends = ((one, ones), (other, others))
        for end, addresses in ends:
            for address in addresses:
                more = ["nodad"] if ":" in address else []
                end.run("ip", "addr", "add", address, "dev", device, *more)
            end.run("ip", "link", "set", device, "up")
        metric = ["metric", str(100 + self._links)]
        for end, addresses in ((one, others), (other, ones)):
            for is_six in (False, True):
                via = next((a.partition("/")[0] for a in addresses if (":" in a) is is_six), None)
                if via is not None:
                    end.run("ip", "-6" if is_six else "-4", "route", "add", "default", "via", via, *metric)

    def start(self, namespace: LabNamespace, *argv: str) -> subprocess.Popen[str]:
        """Start a program that runs until it is stopped, or until the lab ends."""
        process = subprocess.Popen(
            namespace.command(*argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(namespace.environment),
        )
        self._stack.callback(_end, process)
        return process

    def keep(self, made: socket.socket) -> socket.socket:
        """Close this with the lab."""
        self._stack.callback(made.close)
        return made

    def at_the_end(self, call: Callable[[], object]) -> None:
        """Call this when the lab ends, before earlier objects are removed."""
        self._stack.callback(call)


def _ip(*argv: str) -> None:
    done = subprocess.run(
        ["ip", *argv],
        capture_output=True,
        text=True,
        env={"PATH": SYSTEM_PATH},
        timeout=DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise ProgramError(f"ip {' '.join(argv)}: {done.stderr.strip()}")


def _delete(namespace: LabNamespace) -> None:
    with suppress(ProgramError):
        _ip("netns", "del", namespace.name)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(DEADLINE_S)
    if process.stdout is not None:
        process.stdout.close()
