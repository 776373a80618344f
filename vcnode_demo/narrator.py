# SPDX-License-Identifier: Apache-2.0
"""How the demo is told: numbered steps, what is asked, what came back, and a check for each claim."""

import time
from collections.abc import Callable

from vcnode.terminal import Terminal

# The agent promises 2 s for a changed file and 5 s for a cut; the rest is for a machine under load.
DEADLINE_S = 10.0
_POLL_S = 0.02
_MAX_CHARS = 150


class NotAsToldError(Exception):
    """Something is not as the story says; the text is the claim that does not hold."""


class Story:
    """Writes the story and stops it at the first claim that does not hold."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.steps = 0
        self.checks = 0

    def act(self, title: str) -> None:
        self._terminal.line()
        self._terminal.line(title)
        self._terminal.line("-" * len(title))

    def left_out(self, title: str, why: str) -> None:
        """An act that cannot be played here, in one line."""
        self._terminal.line()
        self._terminal.line(f"{title}: left out, it {why}")

    def step(self, title: str) -> None:
        self.steps += 1
        self._terminal.line()
        self._terminal.line(f"{self.steps}. {title}")
        self._terminal.out.flush()

    def say(self, text: str) -> None:
        self._terminal.line(f"   {text}")

    def asked(self, who: str, what: str) -> None:
        self._terminal.line(f"   {who} > {shortened(what)}")

    def came(self, text: str) -> None:
        """What came back, line by line."""
        for line in text.splitlines():
            self._terminal.line(f"      {shortened(line)}".rstrip())

    def check(self, is_so: bool, claim: str) -> None:
        """Claim something. Raises NotAsToldError if it is not so."""
        if not is_so:
            raise NotAsToldError(claim)
        self.checks += 1
        self._terminal.line(f"   ok: {claim}")

    def wait(self, probe: Callable[[], bool], claim: str) -> float:
        """Claim something that becomes so within the deadline; return after how many seconds."""
        began_s = time.monotonic()
        while not probe():
            if time.monotonic() - began_s > DEADLINE_S:
                raise NotAsToldError(f"{claim} (waited {DEADLINE_S:.0f} s)")
            time.sleep(_POLL_S)
        took_s = time.monotonic() - began_s
        self.check(True, f"{claim} (after {took_s:.1f} s)")
        return took_s


def shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 4]} ..."
