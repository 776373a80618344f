# SPDX-License-Identifier: Apache-2.0
"""The change from one ruleset to the next, as a value and as text.

The unit is the object (chain, map, set). A small change of a long object is sent as edits of its lines. An
example is the dispatch chain when a Service goes from two endpoints to one. So a delta is as small as the
change, whatever the ruleset's size. Its text, line by line:

    - nat/VCN-SVC-ABC           remove the object
    = nat/VCN-SVC-DEF           replace or add the object; its lines follow, each after "+"
    ~ nat/VCN-SERVICES          edit the object
    @ 12 1                      ... remove 1 line at old line 12 (the first is 0)
    + -d 10.0.0.1/32 ...        ... and insert this one
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from ruleset.document import BadDocument, Document, Ruleset, check_objects, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend

_EDIT = re.compile(r"@ (0|[1-9][0-9]{0,8}) (0|[1-9][0-9]{0,8})")


class BaseMismatch(Exception):  # noqa: N818 - a result: the sender answers with the whole ruleset
    """A delta was applied to another ruleset than its base."""


@dataclass(frozen=True, slots=True)
class Edit:
    """At line `at` (from 0) of the old object: remove `removed` lines, insert `added`."""

    at: int
    removed: int
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentDelta:
    """The changes of one document. Each object is in one of the three at most.

    `changed` has new and replaced objects whole. `edited` has edits in the order of their lines; no two
    of them touch.
    """

    family: Family
    backend: Backend
    changed: Mapping[str, tuple[str, ...]]
    removed: tuple[str, ...]
    edited: Mapping[str, tuple[Edit, ...]]

    def text(self) -> str:
        """The delta as text; see the top of this file."""
        lines = [f"- {name}" for name in sorted(self.removed)]
        for name in sorted(self.changed):
            lines.append(f"= {name}")
            lines += (f"+ {line}" for line in self.changed[name])
        for name in sorted(self.edited):
            lines.append(f"~ {name}")
            lines += _edit_lines(self.edited[name])
        return "".join(f"{line}\n" for line in lines)

    def touched(self) -> frozenset[str]:
        """The names of all objects that this adds, changes or removes."""
        return frozenset((*self.changed, *self.edited, *self.removed))


@dataclass(frozen=True, slots=True)
class RulesetDelta:
    """The change from the ruleset with `base_digest` to the one with `digest`."""

    generation: int
    digest: str
    base_digest: str
    documents: tuple[DocumentDelta, ...]


def difference(old: Ruleset, new: Ruleset) -> RulesetDelta | None:
    """Return the change from `old` to `new`; None if they are equal.

    A document that one of them lacks counts as empty, so any two rulesets have a delta. The caller
    checks whether it is smaller than the whole ruleset.
    """
    if old.digest == new.digest:
        return None
    pairs = {(d.family, d.backend): None for d in (*old.documents, *new.documents)}
    deltas = (document_difference(old.document(*pair), new.document(*pair)) for pair in pairs)
    changing = tuple(delta for delta in deltas if delta.touched())
    return RulesetDelta(new.generation, new.digest, old.digest, changing)


def apply_delta(old: Ruleset, delta: RulesetDelta) -> Ruleset:
    """Return the ruleset that `delta` makes of `old`; applied to its own result it changes nothing.

    Raises `BaseMismatch` if `old` is not the delta's base, or if the result does not have its digest.
    """
    if old.digest == delta.digest:
        return Ruleset(delta.generation, old.digest, old.documents)
    if old.digest != delta.base_digest:
        raise BaseMismatch(f"have {old.digest[:16]}, the delta is from {delta.base_digest[:16]}")
    documents = {(d.family, d.backend): d for d in old.documents}
    for change in delta.documents:
        pair = (change.family, change.backend)
        documents[pair] = apply_document_delta(old.document(*pair), change)
    new = make_ruleset(delta.generation, documents.values())
    if new.digest != delta.digest:
        raise BaseMismatch(f"the delta makes {new.digest[:16]}, not {delta.digest[:16]}")
    return new


def document_difference(old: Document, new: Document) -> DocumentDelta:
    """Return the change from one document to another of its family and backend."""
    changed: dict[str, tuple[str, ...]] = {}
    edited: dict[str, tuple[Edit, ...]] = {}
    for name, lines in new.objects.items():
        before = old.objects.get(name)
        if before == lines:
            continue
        edits = () if before is None else _edits(before, lines)
        # Most chains have two or three lines: the whole is as short, and easier to read.
        if before is not None and _size(_edit_lines(edits)) < _size(lines):
            edited[name] = edits
        else:
            changed[name] = lines
    removed = tuple(sorted(old.objects.keys() - new.objects.keys()))
    return DocumentDelta(new.family, new.backend, changed, removed, edited)


def apply_document_delta(old: Document, delta: DocumentDelta) -> Document:
    """Return the document that `delta` makes of `old`. Raises `BaseMismatch` if it does not fit."""
    objects = dict(old.objects)
    for name in delta.removed:
        if objects.pop(name, None) is None:
            raise BaseMismatch(f"the base has no {name} to remove")
    objects.update(delta.changed)
    for name, edits in delta.edited.items():
        if name not in objects:
            raise BaseMismatch(f"the base has no {name} to edit")
        objects[name] = _edit(name, objects[name], edits)
    return Document(old.family, old.backend, objects)


def parse_delta(text: str, family: Family, backend: Backend) -> DocumentDelta:
    """The inverse of `DocumentDelta.text`. Raises `BadDocument` with the bad line.

    Names and lines must be in the backend's vocabulary, as with `ruleset.document.parse`.
    """
    changed: dict[str, list[str]] = {}
    edited: dict[str, list[tuple[int, int, list[str]]]] = {}
    removed: list[str] = []
    seen: set[str] = set()
    added: list[str] | None = None
    edits: list[tuple[int, int, list[str]]] | None = None
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        mark, _, rest = line.partition(" ")
        if mark in ("-", "=", "~"):
            if rest in seen:
                raise BadDocument(number, line, "an object named twice")
            seen.add(rest)
            added, edits = None, None
        if mark == "-":
            removed.append(rest)
        elif mark == "=":
            added = changed[rest] = []
        elif mark == "~":
            edits = edited[rest] = []
        elif mark == "@" and edits is not None and (place := _EDIT.fullmatch(line)):
            added = []
            edits.append((int(place[1]), int(place[2]), added))
        elif mark == "+" and added is not None:
            added.append(rest)
        else:
            raise BadDocument(number, line, "not a line of a delta")
    delta = DocumentDelta(
        family,
        backend,
        {name: tuple(lines) for name, lines in changed.items()},
        tuple(sorted(removed)),
        {name: tuple(Edit(a, r, tuple(lines)) for a, r, lines in made) for name, made in edited.items()},
    )
    check_objects({**delta.changed, **dict.fromkeys((*delta.removed, *delta.edited), ())}, backend)
    for name, made in delta.edited.items():
        for edit in made:
            check_objects({name: edit.added}, backend)
    return delta


def _edit_lines(edits: tuple[Edit, ...]) -> list[str]:
    lines: list[str] = []
    for edit in edits:
        lines.append(f"@ {edit.at} {edit.removed}")
        lines += (f"+ {line}" for line in edit.added)
    return lines


def _size(lines: list[str] | tuple[str, ...]) -> int:
    return sum(len(line) + 3 for line in lines)


def _edit(name: str, lines: tuple[str, ...], edits: tuple[Edit, ...]) -> tuple[str, ...]:
    made: list[str] = []
    done = 0
    for edit in edits:
        if edit.at < done or edit.at + edit.removed > len(lines):
            raise BaseMismatch(f"an edit outside {name}")
        made += lines[done : edit.at]
        made += edit.added
        done = edit.at + edit.removed
    return (*made, *lines[done:])


def _edits(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[Edit, ...]:
    """Edits from `old` to `new`: few if lines are unique and keep their order.

    Dispatch chains are so: each line has its own address and port. difflib takes seconds for thousands of
    lines; this is linear, and its result is only longer for other chains.
    """
    places = {line: place for place, line in enumerate(old)}
    if len(places) != len(old):
        return (_whole(old, new),)
    edits: list[Edit] = []
    done = 0  # lines of `old` that are kept or removed
    added: list[str] = []
    for line in new:
        place = places.get(line, -1)
        if place < done:
            added.append(line)
            continue
        if added or place > done:
            edits.append(Edit(done, place - done, tuple(added)))
            added = []
        done = place + 1
    if added or done < len(old):
        edits.append(Edit(done, len(old) - done, tuple(added)))
    return tuple(edits)


def _whole(old: tuple[str, ...], new: tuple[str, ...]) -> Edit:
    """One edit of all between the first and the last line that differ."""
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    rest = zip(reversed(old[head:]), reversed(new[head:]), strict=False)
    tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))
    return Edit(head, len(old) - head - tail, new[head : len(new) - tail])
