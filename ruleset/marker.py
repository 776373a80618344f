# SPDX-License-Identifier: Apache-2.0
"""An empty chain whose name says which ruleset is in.

A read-back of a packet filter tells by it what it was given, without anybody's memory: after a
restart, or where the guest's own agent is not ours. iptables commits table by table, so each of
its tables has one, and only if they agree is the ruleset in.
"""

from collections.abc import Iterable

from ruleset.names import PREFIX

MARK = f"{PREFIX}MARK-"

DIGITS = 16
"""Hexadecimal digits of the digest: a chain's name has room for no more than 19."""


def mark(digest: str) -> str:
    """The name of the chain that marks the ruleset of this digest."""
    return f"{MARK}{digest[:DIGITS]}"


def is_mark_object(name: str) -> bool:
    """Whether the object of this name ("nat/VCN-MARK-...", "chain VCN-MARK-...") is a marker."""
    # Asked of hundreds of names for each change.
    return MARK in name and name.replace("/", " ").partition(" ")[2].startswith(MARK)


def agreed(marks_of_tables: Iterable[frozenset[str]]) -> str:
    """The marker that every table has, and no other; "" if there is none."""
    tables = list(marks_of_tables)
    first = tables[0] if tables else frozenset()
    return next(iter(first)) if len(first) == 1 and all(marks == first for marks in tables) else ""
