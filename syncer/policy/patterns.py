# SPDX-License-Identifier: Apache-2.0
"""Lists of names in which one `*` stands for any text: allow-lists and deny-lists of a policy. Pure.

Each entry is `text`, `text*`, `*text`, `text*text` or `*text*`, so that a look-up takes time in proportion to
the name alone. A key of Kubernetes has one slash, so `*.nri.io/*` is every key of a domain below `nri.io`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Patterns:
    """A list of patterns, prepared for `match`. Equal to another of the same entries."""

    entries: tuple[str, ...] = ()
    exact: frozenset[str] = field(init=False, compare=False, repr=False)
    prefixes: tuple[str, ...] = field(init=False, compare=False, repr=False)
    suffixes: tuple[str, ...] = field(init=False, compare=False, repr=False)
    ends: tuple[tuple[str, str], ...] = field(init=False, compare=False, repr=False)
    parts: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        exact, prefixes, suffixes, ends, parts = set(), [], [], [], []
        for entry in self.entries:
            first, star, last = entry.partition("*")
            if not star:
                exact.add(entry)
            elif not last:
                prefixes.append(first)
            elif not first and last.endswith("*"):
                parts.append(last[:-1])
            elif not first:
                suffixes.append(last)
            else:
                ends.append((first, last))
        for name, value in (
            ("exact", frozenset(exact)),
            ("prefixes", tuple(prefixes)),
            ("suffixes", tuple(suffixes)),
            ("ends", tuple(ends)),
            ("parts", tuple(parts)),
        ):
            object.__setattr__(self, name, value)

    def match(self, name: str) -> bool:
        """Whether an entry stands for this name."""
        if not self.entries:
            return False
        if name in self.exact or name.startswith(self.prefixes) or name.endswith(self.suffixes):
            return True
        for part in self.parts:
            if part in name:
                return True
        for first, last in self.ends:
            if len(name) >= len(first) + len(last) and name.startswith(first) and name.endswith(last):
                return True
        return False


def of(*entries: str) -> Patterns:
    return Patterns(entries)


def joined(patterns: Patterns, more: Iterable[str]) -> Patterns:
    """The list with more entries."""
    return Patterns((*patterns.entries, *more))


def is_pattern(text: str) -> bool:
    """Whether the text is one of the forms that are understood."""
    stars = text.count("*")
    if stars == 2:
        return len(text) > 2 and text[0] == text[-1] == "*"
    return bool(text) and stars < 2
