# SPDX-License-Identifier: Apache-2.0
"""What the languages of both packet filters share: how a text that is not of theirs is refused."""

import re
from collections.abc import Mapping

Objects = Mapping[str, tuple[str, ...]]

MAX_LINE_CHARACTERS = 256 * 1024
"""Longest line of a document: an nft chain lists all endpoints of a Service in one rule."""

_PLAIN = re.compile(r"[ -~]+")


class BadDocument(ValueError):  # noqa: N818 - it says what is bad; every user catches it by this name
    """A text or a line that is not of its packet filter's language. `line_number` is 0 for an object."""

    def __init__(self, line_number: int, line: str, why: str) -> None:
        shown = line if len(line) <= 200 else line[:200] + "..."
        where = f"line {line_number}: " if line_number else ""
        super().__init__(f"{where}{why}: {shown!r}")
        self.line_number = line_number
        self.line = line
        self.why = why


def check_line(line: str) -> None:
    """Raise `BadDocument` unless `line` is printable ASCII of a sensible length, without margins."""
    if len(line) > MAX_LINE_CHARACTERS:
        raise BadDocument(0, line, "line too long")
    if not _PLAIN.fullmatch(line) or line[0] == " " or line[-1] == " ":
        raise BadDocument(0, line, "not a line of plain text")
