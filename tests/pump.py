# SPDX-License-Identifier: Apache-2.0
"""Pump tests: whether work on one object grows with its size, and no faster.

`Schema` makes objects of a kind from Kubernetes' own schemas, with every field, and with any list, map or
text as long as a test likes. `superlinear` doubles all of them at once, twice, and finds those whose work
more than doubles. Work is counted and not timed: steps of Python, calls of C functions, and the characters
that each comparison, search or copy of a text goes through. So it is the same in every run.

A list that is pumped gets further items of the usual size: only its first item is pumped below. So the
object's own size is a sum, and what grows with a product of two lists is the work alone.
"""

import gc
import itertools
import json
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

Sizes = Mapping[str, int]
"""Entries of lists and maps by their paths, as `spec.containers[].env`; of texts, blocks of CHARS more."""

ABSENT = object()
"""A value of a field that an object does not have."""

_SCHEMAS = json.loads((Path(__file__).parent / "kube_schemas" / "schemas.json").read_text())

# A type that contains itself, as JSONSchemaProps, is gone into so often.
_MAX_NESTING = 1
CHARS = 16
"""Of a text so many characters are one step."""
_FIRST = 2
"""Sizes that are measured are this, twice and four times as much."""
_LARGER = 48
_BASE = 4
"""Blocks of a text that is pumped, beside its size: above the 63 characters of names and labels."""
_NOISE = 4
"""Steps. Where each pair of two lists takes one there are 24 more, and 12 where a search ends half-way."""
_BLOCKS = 4


class _Counter:
    """What `Text` and the tracing functions count into: they have no caller of ours to give it to."""

    steps = 0


def charge(steps: int) -> None:
    """Count work that is not seen: what a fake does in the place of C, such as decoding."""
    _Counter.steps += steps


class Text(str):
    """A text that counts what is done with it, also by a dictionary or a list."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        charge(1 + (len(self) // CHARS if isinstance(other, str) else 0))
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        charge(1 + (len(self) // CHARS if isinstance(other, str) else 0))
        return str.__ne__(self, other)

    def __hash__(self) -> int:
        charge(1)
        return str.__hash__(self)

    def __contains__(self, other: object) -> bool:
        charge(1 + len(self) // CHARS)
        return isinstance(other, str) and str.__contains__(self, other)

    def __add__(self, other: str) -> str:
        charge(1 + (len(self) + len(other)) // CHARS)
        return str.__add__(self, other)

    def __format__(self, spec: str) -> str:
        charge(1 + len(self) // CHARS)
        return str.__format__(self, spec)

    def __str__(self) -> str:
        return self

    # Copies of an object are copies of its lists and maps, as with other texts.
    def __deepcopy__(self, memo: object) -> "Text":
        return self


def steps(call: Callable[[], object]) -> int:
    """The work of a call. It must not be traced already."""
    traced, profiled, collects = sys.gettrace(), sys.getprofile(), gc.isenabled()
    # What is called at each collection of garbage is not of the call.
    gc.disable()
    _Counter.steps = 0
    sys.settrace(_trace)
    sys.setprofile(_profile)
    try:
        call()
    finally:
        sys.setprofile(profiled)
        sys.settrace(traced)
        if collects:
            gc.enable()
    return _Counter.steps


def _trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
    # What `Text` does counts itself.
    if frame.f_code.co_filename == __file__:
        return None
    # A line of a loop or a comprehension is one in each turn.
    _Counter.steps += 1
    return _trace


def _profile(frame: FrameType, event: str, arg: Any) -> None:
    if event == "c_call" and frame.f_code.co_filename != __file__:
        subject = getattr(arg, "__self__", None)
        charge(1 + (len(subject) // CHARS if isinstance(subject, str | bytes) else 0))


def peak_bytes(call: Callable[[], object]) -> int:
    """The memory that a call takes at most, beside what was there."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Schema:
    """A kind of Kubernetes.

    `values` are those that a test needs at some paths: any value, ABSENT, or a function from the place of the
    object in its lists, as `0.3`.
    """

    def __init__(self, kind: str, values: Mapping[str, Any] | None = None) -> None:
        self.kind = kind
        self._type = {"object": _SCHEMAS["kinds"][kind]}
        self._values = dict(values or {})

    def places(self) -> list[str]:
        """The paths of all lists, maps and texts."""
        return list(dict.fromkeys(self._places(self._type, "", ())))

    def object(self, sizes: Sizes, *, text: Callable[[str], str] = Text) -> dict[str, Any]:
        """An object with every field; texts are made by `text`."""
        found = self._made(self._type, "", "0", True, sizes, text, ())
        assert isinstance(found, dict)
        return found

    def _places(self, kind: Any, path: str, within: tuple[str, ...]) -> Iterator[str]:
        if path in self._values:
            return
        match kind:
            case {"object": name}:
                if within.count(name) < _MAX_NESTING:
                    for field, below in _SCHEMAS["types"][name].items():
                        yield from self._places(below, f"{path}.{field}".lstrip("."), (*within, name))
            case {"list": below} | {"map": below}:
                yield path
                yield from self._places(below, f"{path}[]", within)
            case "string" | "byte" | "any":
                yield path

    def _made(
        self,
        kind: Any,
        path: str,
        where: str,
        is_first: bool,
        sizes: Sizes,
        text: Callable[[str], str],
        within: tuple[str, ...],
    ) -> Any:
        if path in self._values:
            value = self._values[path]
            return value(where) if callable(value) else value
        size = sizes.get(path, 0) if is_first else 0
        match kind:
            case {"object": name}:
                if within.count(name) >= _MAX_NESTING:
                    return ABSENT
                fields = {
                    text(field): self._made(
                        below, f"{path}.{field}".lstrip("."), where, is_first, sizes, text, (*within, name)
                    )
                    for field, below in _SCHEMAS["types"][name].items()
                }
                return {field: value for field, value in fields.items() if value is not ABSENT}
            case {"list": below}:
                items = (
                    self._made(below, f"{path}[]", f"{where}.{n}", is_first and not n, sizes, text, within)
                    for n in range(max(1, size))
                )
                return [each for each in items if each is not ABSENT]
            case {"map": below}:
                entries = {
                    text(f"key-{n}"): self._made(
                        below, f"{path}[]", f"{where}.{n}", is_first and not n, sizes, text, within
                    )
                    for n in range(max(1, size))
                }
                return {key: value for key, value in entries.items() if value is not ABSENT}
            case "integer":
                return 1
            case "number":
                return 1.5
            case "boolean":
                return True
            case "quantity":
                return text("1")
            case "time":
                return text("2026-01-01T00:00:00Z")
            case "intOrString":
                return 1
            case _:
                own = f"{re.split(r'[.]', path)[-1].removesuffix('[]')}-{where}"
                return text(own + "x" * ((size + _BASE) * CHARS if size else 0))


def superlinear(
    measure: Callable[[Sizes], int],
    places: Sequence[str],
    *,
    tolerated: Collection[str] = (),
    seed: int = 0,
    first: int = _FIRST,
    noise: int = _NOISE,
) -> list[str]:
    """Sets of places whose doubling more than doubles the work, by the fewest that do it together.

    `measure` makes an object of these sizes and counts the work on it. All places are pumped together, then
    by halves, since what ends a loop early at one of them may hide another. Sorting counts as linear. The
    sizes are `first`, twice and four times as much, and `noise` steps more are no finding: where caches stay
    warm or values take turns, both are to be larger.
    """
    draw = random.Random(seed)  # noqa: S311 - a draw that repeats
    found: list[str] = []
    left = [each for each in places if each not in tolerated]
    # Each two of the places are together in one of these, without most of the others.
    shuffled = draw.sample(left, len(left))
    blocks = [shuffled[at::_BLOCKS] for at in range(_BLOCKS)]
    pairs = (one + other for one, other in itertools.combinations(blocks, 2))
    # Of few places many pairs are the same set.
    groups = {frozenset(each): each for each in (*pairs, left) if each}

    def is_superlinear(pumped: Sequence[str]) -> bool:
        return _excess(measure, pumped, first) > noise

    for group in reversed(groups.values()):
        remaining = [each for each in group if not any(each in known.split(" x ") for known in found)]
        while remaining and is_superlinear(remaining):
            culprits = _fewest(is_superlinear, remaining)
            if _is_product(measure, culprits, first):
                found.append(" x ".join(sorted(culprits)))
            remaining = [each for each in remaining if each not in culprits]
    return sorted(set(found))


def _excess(measure: Callable[[Sizes], int], places: Sequence[str], first: int) -> int:
    """The work that four times the size takes beyond what twice the size foretells; 0 is linear."""
    one, two, four = (measure(dict.fromkeys(places, first * factor)) for factor in (1, 2, 4))
    return (four - two) - 2 * (two - one)


def _fewest(is_superlinear: Callable[[Sequence[str]], bool], places: Sequence[str]) -> list[str]:
    """A smallest set that is still superlinear (delta debugging)."""
    culprits = list(places)
    parts = 2
    while len(culprits) > 1:
        size = max(1, -(-len(culprits) // parts))
        chunks = [culprits[at : at + size] for at in range(0, len(culprits), size)]
        for chunk in chunks:
            rest = [each for each in culprits if each not in chunk]
            if rest and is_superlinear(rest):
                culprits, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(culprits), parts * 2)
    return culprits


def _is_product(measure: Callable[[Sizes], int], places: Sequence[str], first: int) -> bool:
    """Whether the excess goes on to grow as a square: that of sorting grows more slowly, and that of a
    product which some limit ends does not grow."""
    square = (_LARGER / first) ** 2
    return _excess(measure, places, _LARGER) > _excess(measure, places, first) * square / 4
