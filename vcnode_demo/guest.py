# SPDX-License-Identifier: Apache-2.0
"""A guest of the demo: a network namespace without a name, held by one process in it.

The host's network gets nothing, not even a link. The namespace ends with its processes, and they end with
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
# What ends a process when the demo does, however that ends (prctl(2), PR_SET_PDEATHSIG).
BOUND = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True, slots=True)
class GuestHttpResult:
    """What came of one request in a guest; `error` is empty if something answered."""

    body: str
    error: str
    took_s: float
    at_s: float = 0.0

    @property
    def ms(self) -> str:
        return f"{self.took_s * 1000:.1f} ms"


@dataclass(frozen=True, slots=True)
class EndpointRemoval:
    """How traffic left an endpoint: when it answered for the last time (0.0: never), of so many."""

    last_s: float
    answers: int
    errors: int
    has_left: bool


class Guest:
    """`start`, then ask; `stop` ends it and all that is in its network.

    `program` is what runs in it, a module that needs nothing of ours and answers to "up".
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
        # Where it runs, whatever leads to Python by way of /etc may be another.
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
        """What a program in the guest's network prints. Raises ToolError."""
        return run(self.command(*argv), given)

    # ---- the shell in it

    def up(self) -> None:
        """Wait for its first answer: it is in its own namespace then, and not before."""
        self._ask("up")

    def serve(self, port: int, text: str) -> None:
        self._ask("serve", port, text)

    def get(self, address: str, port: int, within_s: float = 3.0) -> GuestHttpResult:
        return _answer(self._ask("get", address, port, within_s))

    @contextmanager
    def until(self, address: str, port: int, word: str, within_s: float) -> Iterator[list[GuestHttpResult]]:
        """Ask all the while that the block runs, and then until `word` is in an answer.

        The list has that answer after the block; the last one that came if there was none in time.
        """
        found: list[GuestHttpResult] = []
        self._send("until", address, port, word, within_s)
        yield found
        found.append(_answer(self._receive(within_s + _DEADLINE_S)))

    @contextmanager
    def leave(self, address: str, port: int, word: str, within_s: float) -> Iterator[list[EndpointRemoval]]:
        """Ask all the while that the block runs, and then until no answer has `word` any more."""
        found: list[EndpointRemoval] = []
        self._send("leave", address, port, word, within_s)
        yield found
        said = self._receive(within_s + _DEADLINE_S)
        found.append(EndpointRemoval(said["last"], said["answers"], said["errors"], said["left"]))

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
        said: dict[str, Any] = json.loads(line)
        return said


def run(argv: Sequence[str], given: str = "") -> str:
    """What a program prints. Raises ToolError with its own words."""
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


def _answer(said: dict[str, Any]) -> GuestHttpResult:
    return GuestHttpResult(said.get("body", ""), said.get("error", ""), said["s"], said.get("at", 0.0))
