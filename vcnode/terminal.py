# SPDX-License-Identifier: Apache-2.0
"""The output of verbs: a terminal, aligned columns, states in colour, and lengths of time.

Lines are cut and folded for a terminal alone: what a file or another program gets is whole.
"""

import datetime as dt
import enum
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from vcnode.output import Output, document, write

# A verb that asks a question has a negative result. A question that failed has another code.
EXIT_NEGATIVE = 1
EXIT_FAILED = 3

_COLUMN_GAP = "  "
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
# A column is cut to no less: half a pod's name still tells it from others.
_MIN_COLUMN = 10
# Messages are cut, and folded, to no less; in a narrower terminal its own wrapping reads better.
_MIN_LAST = 24


class ToolError(Exception):
    """Why a verb has no answer, in one line: printed on stderr, exit code 3."""


class Style(enum.Enum):
    """What a state means to an operator; the value is its ANSI colour (ECMA-48, SGR)."""

    GOOD = "32"
    WARNING = "33"
    BAD = "31"


class Styled(str):
    """A cell or a line with states in colour, as `(start, end, style)`; equal to its text alone."""

    __slots__ = ("spans",)
    spans: tuple[tuple[int, int, Style], ...]

    def __new__(cls, text: str, *spans: tuple[int, int, Style]) -> "Styled":
        made = super().__new__(cls, text)
        made.spans = spans
        return made


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a verb writes, the time of its start (UTC), and what `-o` asks for.

    `width` in characters is None unless `out` is a terminal. Some terminals cannot redraw.
    """

    out: TextIO
    err: TextIO
    now: dt.datetime
    output: Output = Output.TEXT
    width: int | None = None
    has_colors: bool = False
    can_redraw: bool = False

    @property
    def is_document(self) -> bool:
        """Whether the verb is to print one document, and no lines."""
        return self.output in (Output.JSON, Output.YAML)

    @property
    def is_wide(self) -> bool:
        return self.output is Output.WIDE

    @property
    def room(self) -> int | None:
        """How wide lines may be; None for any width."""
        return None if self.is_wide else self.width

    def line(self, text: str = "") -> None:
        spans = text.spans if self.has_colors and isinstance(text, Styled) else ()
        text = printable(text)
        for start, end, style in sorted(spans, key=lambda span: span[0], reverse=True):
            text = f"{text[:start]}\x1b[{style.value}m{text[start:end]}\x1b[m{text[end:]}"
        self.out.write(f"{text}\n")

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def redraw(self, texts: Iterable[str]) -> None:
        """The lines in place of all that is on the screen; below it where the terminal cannot do that."""
        if self.can_redraw:
            # ECMA-48: CUP to the first line, and ED of all that follows.
            self.out.write("\x1b[H\x1b[J")
        self.lines(texts)
        self.out.flush()

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


def styled(state: str, style: Style | None, rest: str = "") -> str:
    """A state in its colour, and the text after it."""
    return f"{state}{rest}" if style is None else Styled(f"{state}{rest}", (0, len(state), style))


def indented(line: str, prefix: str = "  ") -> str:
    """The line behind a prefix, with its colours."""
    return _joined([prefix, line])


def columns(rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Rows as aligned lines; the last column may have any width, or folds at `width` characters."""
    known = [[_cell(cell) for cell in row] for row in rows]
    widths = _widths(known)
    return [line for row in known for line in _wrapped(_padded(row, widths), row, width)]


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Rows as aligned lines of at most `width` characters: the widest cells are cut, with an ellipsis.

    Names are cut in their middle, as their ends differ; the last column at its end. Short columns stay
    whole, so a narrow terminal may still wrap.
    """
    known = [[_cell(cell) for cell in row] for row in rows]
    widths = _widths(known)
    if width is not None:
        widths = _fit_widths(widths, width - len(_COLUMN_GAP) * (len(widths) - 1))
    last = len(widths) - 1
    cut = [[_cut(cell, widths[at], is_name=at != last) for at, cell in enumerate(row)] for row in known]
    return [_joined(_padded(row, widths)) for row in cut]


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """The text in lines of at most `width` characters, of which all but the first are indented."""
    if width is None or len(text) <= width or width - len(indent) < _MIN_LAST:
        return [text]
    lines = textwrap.wrap(
        printable(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
    spans = text.spans if isinstance(text, Styled) else ()
    return [Styled(lines[0], *(span for span in spans if span[1] <= len(lines[0]))), *lines[1:]]


def _cell(text: str) -> str:
    return Styled(printable(text), *text.spans) if isinstance(text, Styled) else printable(text)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    count = max((len(row) for row in rows), default=0)
    return [max((len(row[at]) for row in rows if at < len(row)), default=0) for at in range(count)]


def _fit_widths(widths: list[int], room: int) -> list[int]:
    """The widths, of which the widest are reduced until all fit into `room`, or are at their least."""

    def at_most(limit: int) -> list[int]:
        return [
            *(min(each, limit) for each in widths[:-1]),
            *(min(each, max(limit, _MIN_LAST)) for each in widths[-1:]),
        ]

    limit = min(max(widths, default=0), max(room, _MIN_COLUMN))
    while limit > _MIN_COLUMN and sum(at_most(limit)) > room:
        limit -= 1
    fitting = at_most(limit)
    spare = max(0, room - sum(fitting))
    # What is left over by cutting all of the widest alike goes to the last of them.
    for at in reversed(range(len(widths))):
        more = min(spare, widths[at] - fitting[at])
        fitting[at] += more
        spare -= more
    return fitting


def _cut(text: str, width: int, *, is_name: bool) -> str:
    if len(text) <= width:
        return text
    if not is_name:
        cut = f"{text[: width - 1].rstrip()}{_ELLIPSIS}"
    else:
        end = (width - 1) // 2
        cut = f"{text[: width - 1 - end]}{_ELLIPSIS}{text[len(text) - end :]}"
    spans = text.spans if isinstance(text, Styled) else ()
    return Styled(cut, *((start, min(end, len(cut)), style) for start, end, style in spans))


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The cells with gaps between them; the last is as it is."""
    last = len(row) - 1
    parts: list[str] = []
    for at, cell in enumerate(row):
        parts.append(cell)
        if at != last:
            parts.append(" " * (widths[at] - len(cell)) + _COLUMN_GAP)
    return parts


def _wrapped(parts: Sequence[str], row: Sequence[str], width: int | None) -> list[str]:
    line = _joined(parts)
    if width is None or not row or len(row) < 2:
        return [line]
    start = sum(map(len, parts[:-1]))
    first, *more = wrapped(row[-1], width - start)
    return [_joined([*parts[:-1], first]), *(f"{' ' * start}{each}" for each in more)]


def _joined(parts: Iterable[str]) -> str:
    """One line of the parts, with their colours, without spaces at its end."""
    at = 0
    spans: list[tuple[int, int, Style]] = []
    known = list(parts)
    for part in known:
        if isinstance(part, Styled):
            spans += ((start + at, end + at, style) for start, end, style in part.spans)
        at += len(part)
    text = "".join(known).rstrip()
    return Styled(text, *spans) if spans else text


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
