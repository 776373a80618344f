# SPDX-License-Identifier: Apache-2.0
"""The output of verbs: a terminal, aligned columns, and lengths of time."""

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from vcnode.output import Output, document, write

# A verb that asks a question: the answer is no. That there is no answer is another code.
EXIT_NEGATIVE = 1
EXIT_FAILED = 3

_COLUMN_GAP = "  "


class ToolError(Exception):
    """Why a verb has no answer, in one line: printed on stderr, exit code 3."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a verb writes, the time of its start (UTC), and what `-o` asks for."""

    out: TextIO
    err: TextIO
    now: dt.datetime
    output: Output = Output.TEXT

    @property
    def is_document(self) -> bool:
        """Whether the verb is to print one document, and no lines."""
        return self.output in (Output.JSON, Output.YAML)

    @property
    def is_wide(self) -> bool:
        return self.output is Output.WIDE

    def line(self, text: str = "") -> None:
        self.out.write(f"{printable(text)}\n")

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def document(self, kind: str, value: Mapping[str, Any]) -> None:
        """One document for programs: `value` below `apiVersion` and `kind`, such as GuestList with `items`.

        Raises ToolError.
        """
        try:
            self.out.write(write(document(kind, value), self.output))
        except RecursionError:
            raise ToolError(f"{kind}: the daemon's answer is nested too deeply") from None

    def warn(self, text: str) -> None:
        self.err.write(f"vcnode: {printable(text)}\n")


def exit_code(verdict: bool | None) -> int:
    """Of a verb that asks a question: the answer is yes, no, or cannot be had."""
    if verdict is None:
        return EXIT_FAILED
    return 0 if verdict else EXIT_NEGATIVE


def printable(text: str) -> str:
    """The text on one line, without control characters.

    Others write the files and sockets that it comes from: a subject, a reason, a path.
    """
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as aligned lines; the last column may have any width."""
    known = [[printable(cell) for cell in row] for row in rows]
    count = max((len(row) for row in known), default=0)
    widths = [max((len(row[at]) for row in known if at < len(row)), default=0) for at in range(count)]
    return [
        _COLUMN_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in known
    ]


def duration(seconds: float) -> str:
    """A length of time in its two largest units: `3 h 12 min`, `4 s`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def day_left(until: dt.datetime, now: dt.datetime) -> str:
    """A date and its distance: `2027-03-01 (in 101 days)`."""
    days = (until - now).days
    distance = f"in {days} days" if until > now else f"expired {-days} days ago"
    return f"{until:%Y-%m-%d} ({distance})"


def words(state: str) -> str:
    """A state's CamelCase as words: `notSynced` is `not synced`."""
    return re.sub("(?<=[a-z])[A-Z]", lambda found: f" {found[0].lower()}", state)
