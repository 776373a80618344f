# SPDX-License-Identifier: Apache-2.0
"""Prints the demo: numbered steps, requests and their answers, and a check for each claim."""

import time
from collections.abc import Callable

from vcnode.terminal import Terminal

# vn-agent guarantees 2 s for a changed file and 5 s for a cut; the rest is for a busy machine.
DEADLINE_S = 10.0
_POLL_S = 0.02
_MAX_CHARS = 150


class CheckFailedError(Exception):
    """A check failed; the text is its claim."""


class Narrator:
    """Prints to the terminal, and ends the demo at the first check that fails."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.steps = 0
        self.checks = 0

    def begin_scenario(self, title: str) -> None:
        self._terminal.line()
        self._terminal.line(title)
        self._terminal.line("-" * len(title))

    def skipped(self, title: str, why: str) -> None:
        """One line for a scenario that cannot run here."""
        self._terminal.line()
        self._terminal.line(f"{title}: skipped, it {why}")

    def step(self, title: str) -> None:
        self.steps += 1
        self._terminal.line()
        self._terminal.line(f"{self.steps}. {title}")
        self._terminal.out.flush()

    def note(self, text: str) -> None:
        self._terminal.line(f"   {text}")

    def request(self, who: str, what: str) -> None:
        self._terminal.line(f"   {who} > {shortened(what)}")

    def response(self, text: str) -> None:
        for line in text.splitlines():
            self._terminal.line(f"      {shortened(line)}".rstrip())

    def check(self, is_so: bool, claim: str) -> None:
        """Print the claim. Raises CheckFailedError if it is false."""
        if not is_so:
            raise CheckFailedError(claim)
        self.checks += 1
        self._terminal.line(f"   ok: {claim}")

    def wait_for(self, probe: Callable[[], bool], claim: str, *, within_s: float = DEADLINE_S) -> float:
        """Wait for the claim to become true; return the seconds that took. Raises CheckFailedError."""
        began_s = time.monotonic()
        while not probe():
            if time.monotonic() - began_s > within_s:
                raise CheckFailedError(f"{claim} (waited {within_s:.0f} s)")
            time.sleep(_POLL_S)
        took_s = time.monotonic() - began_s
        self.check(True, f"{claim} (after {took_s:.1f} s)")
        return took_s


def shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 4]} ..."
