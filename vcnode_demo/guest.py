# SPDX-License-Identifier: Apache-2.0
"""A guest of the demo: an unnamed network namespace, held by one process in it.

The host's network stays as it is, without a link. The namespace ends with its processes, and they end with
the demo, however that ends.
"""

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from vcnode.terminal import ToolError
from vcnode_demo import guest_program

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
_DEADLINE_S = 15.0
_LINE_BYTES = 65536
# Ends a process with the demo, however that ends (prctl(2), PR_SET_PDEATHSIG).
BOUND = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True, slots=True)
class GuestHttpResult:
    """The result of one request in a guest; `error` is empty if a server answered."""

    body: str
    error: str
    took_s: float
    at_s: float = 0.0

    @property
    def ms(self) -> str:
        return f"{self.took_s * 1000:.1f} ms"


@dataclass(frozen=True, slots=True)
class EndpointRemoval:
    """How traffic left an endpoint: the time of its last answer (0.0: never), and the number of answers."""

    last_s: float
    answers: int
    errors: int
    has_left: bool


class Guest:
    """`start`, then send requests; `stop` ends it and all processes in its network.

    `program` runs in it: a module that imports the standard library alone and answers "up".
    """

    def __init__(self, name: str, program: ModuleType = guest_program) -> None:
        self.name = name
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Make the namespace and its first process. Raises ToolError."""
        self._start("unshare", "--net", "--")

    def _start(self, *inside: str) -> None:
        """Start the program by a command that ends in running what follows it."""
        # Inside, a path to Python through /etc may lead elsewhere.
        python = str(Path(sys.executable).resolve())
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*BOUND, *inside, python, "-I", "-S", str(self._program.__file__), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_ENVIRONMENT,
        )

    def stop(self) -> None:
        """End it. May be called twice."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(_DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    # ---- programs in it

    def command(self, *argv: str) -> list[str]:
        """The command that runs `argv` in the guest's network."""
        return [*BOUND, "nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *argv]

    def run(self, *argv: str, given: str = "") -> str:
        """Run a program in the guest's network; return its output. Raises ToolError."""
        return run(self.command(*argv), given)

    # ---- the shell in it

    def up(self) -> None:
        """Wait for its first reply: from then on it is in its own namespace."""
        self._ask("up")

    def serve(self, port: int, text: str) -> None:
        self._ask("serve", port, text)

    def get(self, address: str, port: int, within_s: float = 3.0) -> GuestHttpResult:
        return _answer(self._ask("get", address, port, within_s))

    @contextmanager
    def until(self, address: str, port: int, word: str, within_s: float) -> Iterator[list[GuestHttpResult]]:
        """Send requests while the block runs, and then until an answer has `word`.

        The list has that answer after the block, or the last one at the deadline.
        """
        found: list[GuestHttpResult] = []
        self._send("until", address, port, word, within_s)
        yield found
        found.append(_answer(self._receive(within_s + _DEADLINE_S)))

    @contextmanager
    def leave(self, address: str, port: int, word: str, within_s: float) -> Iterator[list[EndpointRemoval]]:
        """Send requests while the block runs, and then until answers stop to have `word`."""
        found: list[EndpointRemoval] = []
        self._send("leave", address, port, word, within_s)
        yield found
        reply = self._receive(within_s + _DEADLINE_S)
        found.append(EndpointRemoval(reply["last"], reply["answers"], reply["errors"], reply["left"]))

    def _ask(self, verb: str, *given: object) -> dict[str, Any]:
        self._send(verb, *given)
        return self._receive(_DEADLINE_S)

    def _send(self, verb: str, *given: object) -> None:
        if self._process is None or self._process.stdin is None:
            raise AssertionError("the guest is not started")
        try:
            self._process.stdin.write(json.dumps({verb: given}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ToolError(f"the demo's guest {self.name} has ended") from None

    def _receive(self, within_s: float) -> dict[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise AssertionError("the guest is not started")
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(within_s):
                raise ToolError(f"the demo's guest {self.name} does not answer")
        line = self._process.stdout.readline(_LINE_BYTES)
        if not line:
            raise ToolError(f"the demo's guest {self.name} has ended")
        reply: dict[str, Any] = json.loads(line)
        return reply


def run(argv: Sequence[str], given: str = "") -> str:
    """Run a program; return its output. Raises ToolError with the first line of its error."""
    try:
        done = subprocess.run(  # noqa: S603 - programs of the system, named in this package
            argv,
            input=given,
            capture_output=True,
            text=True,
            env=_ENVIRONMENT,
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{argv[0]}: {error}") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ToolError(f"{' '.join(argv)}: {words[0]}")
    return done.stdout


def _answer(reply: dict[str, Any]) -> GuestHttpResult:
    return GuestHttpResult(reply.get("body", ""), reply.get("error", ""), reply["s"], reply.get("at", 0.0))
