# SPDX-License-Identifier: Apache-2.0
"""Rules for lines of both packet filters, and the error for others."""

import re
from collections.abc import Mapping

Objects = Mapping[str, tuple[str, ...]]

MAX_LINE_CHARACTERS = 256 * 1024
"""Longest line of a document: an nft rule lists all endpoints of a Service."""

_PLAIN = re.compile(r"[ -~]+")


class BadDocument(ValueError):  # noqa: N818 - names the input's state
    """A text or a line outside of the vocabulary. `line_number` is 0 for an object."""

    def __init__(self, line_number: int, line: str, why: str) -> None:
        shown = line if len(line) <= 200 else line[:200] + "..."
        where = f"line {line_number}: " if line_number else ""
        super().__init__(f"{where}{why}: {shown!r}")
        self.line_number = line_number
        self.line = line
        self.why = why


def check_line(line: str) -> None:
    """Raise `BadDocument` unless `line` is printable ASCII of limited length, without outer spaces."""
    if len(line) > MAX_LINE_CHARACTERS:
        raise BadDocument(0, line, "line too long")
    if not _PLAIN.fullmatch(line) or line[0] == " " or line[-1] == " ":
        raise BadDocument(0, line, "not a line of plain text")
