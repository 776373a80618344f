# SPDX-License-Identifier: Apache-2.0
"""Finds the names of tenants' super namespaces, and their cluster keys, in texts that a tenant will read.

A name is found between characters that no such name has, and at its hyphens too: provisioners and runtimes
join names with those. A text of n characters takes some 30 look-ups for each hyphen at most.
"""

import re
from collections.abc import Collection
from typing import Any

MAX_CHARS = 8192
"""Of a text; what is longer is cut. A message of a terminated container has 4 096 bytes."""

HIDDEN = "***"
"""What stands for a name that is not the reader's."""

_WORDS = re.compile("[a-z0-9-]+")
# Of a VirtualCluster's, with its hash. Other keys are words that any name may be.
_KEY = re.compile("-[0-9a-f]{6}-")
_END = "/"
"""Under which a name that ends there is kept: no part of one has it."""


class SuperNames:
    """The names of all tenants. Super namespaces are added and removed; their keys come and go with them."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._keys: dict[str, int] = {}

    def add(self, name: str, key: str, namespace: str) -> None:
        """A super namespace of the tenant with this cluster key."""
        self._put(name, (key, namespace))
        self._keys[key] = self._keys.get(key, 0) + 1
        if self._keys[key] == 1:
            self._put(key, (key, ""))

    def remove(self, name: str, key: str) -> None:
        """It is gone, or another's by now."""
        self._take(name)
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]
            self._take(key)

    def replaced(self, text: str, key: str, own: Collection[str] = ()) -> str:
        """The text as the tenant with this key may read it: own namespaces by its names, others hidden.

        `own` are words that the tenant gave, and that stay.
        """
        if len(text) > MAX_CHARS:
            text = text[: MAX_CHARS - 4] + " ..."
        if not self._parts:
            return text
        return _WORDS.sub(lambda found: self._word(found.group(), key, own), text)

    def _word(self, word: str, key: str, own: Collection[str]) -> str:
        if word in own:
            return word
        parts = word.split("-")
        made: list[str] = []
        at = 0
        while at < len(parts):
            end, owner = self._longest(parts, at)
            if owner is None or (not owner[1] and owner[0] != key and not _KEY.search(owner[0])):
                made.append(parts[at])
                at += 1
                continue
            at = end
            if owner[0] != key:
                made.append(HIDDEN)
                if not owner[1]:
                    break  # of a namespace that is not known any more: the rest is a name too
            elif owner[1]:
                made.append(owner[1])
        return "-".join(made)

    def _longest(self, parts: list[str], at: int) -> tuple[int, tuple[str, str] | None]:
        """The end of the longest name that begins there, and whose it is: (key, namespace or nothing)."""
        here: dict[str, Any] = self._parts
        end, owner = at, None
        for index in range(at, len(parts)):
            if parts[index] not in here:
                break
            here = here[parts[index]]
            if _END in here:
                end, owner = index + 1, here[_END]
        return end, owner

    def _put(self, name: str, owner: tuple[str, str]) -> None:
        here = self._parts
        for part in name.split("-"):
            here = here.setdefault(part, {})
        here[_END] = owner

    def _take(self, name: str) -> None:
        path = [self._parts]
        parts = name.split("-")
        for part in parts:
            path.append(path[-1][part])
        path[-1].pop(_END, None)
        for index in range(len(parts), 0, -1):
            if path[index]:
                return
            del path[index - 1][parts[index - 1]]
