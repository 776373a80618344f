# SPDX-License-Identifier: Apache-2.0
"""What a guest says in its own words, cut where it is read. Pure.

It is kept, shown in /status and in logs, and sent to every watcher with each event of the guest: no
text of a guest passes a channel but through these, or cut by `stock_faults`.
"""

import string

MAX_TEXT_CHARACTERS = 2_000
MAX_WORD_CHARACTERS = 64
MAX_SENTENCE_CHARACTERS = 300

_PLAIN = frozenset(string.ascii_letters + string.digits + "-._+")


def word(text: str) -> str:
    """A short word of plain letters, whatever a guest sent: a version, an id."""
    return "".join(filter(_PLAIN.__contains__, text[:MAX_WORD_CHARACTERS]))


def sentence(text: str) -> str:
    """A sentence of printable characters, whatever a guest sent."""
    return "".join(filter(str.isprintable, text[:MAX_SENTENCE_CHARACTERS]))
