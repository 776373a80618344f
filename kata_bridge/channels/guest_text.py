# SPDX-License-Identifier: Apache-2.0
"""Bounds on text that a guest chose, applied where it is read. Pure.

Such text is kept, shown in /status and in logs, and sent to every watcher with each event of the guest. So
all of it passes these functions, or the bounds of `stock.faults`.
"""

import string

MAX_TEXT_CHARACTERS = 2_000
MAX_WORD_CHARACTERS = 64
MAX_SENTENCE_CHARACTERS = 300

_PLAIN = frozenset(string.ascii_letters + string.digits + "-._+")


def word(text: str) -> str:
    """A short word of plain letters, such as a version or an id."""
    return "".join(filter(_PLAIN.__contains__, text[:MAX_WORD_CHARACTERS]))


def sentence(text: str) -> str:
    """A sentence of printable characters."""
    return "".join(filter(str.isprintable, text[:MAX_SENTENCE_CHARACTERS]))
