# SPDX-License-Identifier: Apache-2.0
"""The demo in a process: its output, its cheatsheet and its exit."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waiting import wait_until

# On an idle machine it takes ten seconds, and fifteen as root; the rest is for one that does other things.
DEADLINE_S = 90.0


class DemoProcess:
    """A demo that runs, with its output so far, in a directory for temporary files of its own.

    `enter` is a command that ends in running what follows it.
    """

    def __init__(self, directory: Path, *options: str, enter: Sequence[str] = ()) -> None:
        self.temporary = directory / "t"
        self.temporary.mkdir()
        self._output = directory / "output"
        environment = os.environ | {"TMPDIR": str(self.temporary)}  # noqa: TID251 - a child's, with one more
        command = [*enter, sys.executable, "-u", "-m", "vcnode", "demo", *options]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(DEADLINE_S)

    @property
    def text(self) -> str:
        return self._output.read_text()

    def until(self, mark: str) -> None:
        """Wait until it has printed `mark`. Fails with the whole output when it ends before."""

        def is_printed() -> bool:
            has_ended = self.process.poll() is not None
            text = self.text
            assert mark in text or not has_ended, text
            return mark in text

        self.wait(is_printed)

    def wait(self, condition: Callable[[], object]) -> None:
        wait_until(condition, within_s=DEADLINE_S, context=lambda: self.text)

    def ended(self) -> int:
        return self.process.wait(DEADLINE_S)

    def cheatsheet(self) -> list[str]:
        """The commands that it prints at its end with `--keep`."""
        self.until("Ctrl-C takes it all down.")
        printed = self.text.partition("Try, in another terminal:")[2]
        return [line.strip() for line in printed.splitlines() if line.startswith("  ")]


def command_of(lines: Iterable[str], start: str) -> list[str]:
    """The first printed command of a program that begins so, such as `vcnode status`: its words."""
    commands = (shlex.split(line, comments=True) for line in lines)
    return next(
        words for words in commands if words and " ".join((Path(words[0]).name, *words[1:])).startswith(start)
    )


def output_of(*argv: str, timeout_s: float = DEADLINE_S) -> str:
    """What a command that succeeds prints, in a directory that is not the clone's."""
    done = subprocess.run(argv, cwd="/", check=False, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done
    return done.stdout
