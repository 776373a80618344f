# SPDX-License-Identifier: Apache-2.0
"""What differs between two objects, as cases write it: paths with the values before and after."""

from collections.abc import Iterator
from typing import Any

from tests.cases.sync.placeholders import ANY


def changes(was: Any, now: Any, path: tuple[str | int, ...] = ()) -> Iterator[dict[str, Any]]:
    """The changed fields, each at its depth; a list that grew or shrank is one change."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted({*was, *now}):
            yield from changes(was.get(name), now.get(name), (*path, name))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from changes(before, after, (*path, index))
    elif was != now:
        yield {"path": list(path), "was": was, "now": now}


def differs(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """A line for each difference; `ANY` in the expected value matches what stands in its place."""
    if isinstance(expected, str) and ANY in expected:
        start, _, end = expected.partition(ANY)
        text = str(actual)
        if actual is None or not (text.startswith(start) and text.endswith(end)):
            yield f"{path}: expected {expected!r}, found {actual!r}"
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted({*expected, *actual}, key=str):
            if name not in actual or name not in expected:
                side = "expected" if name in expected else "found"
                yield f"{path}.{name}: only {side}: {(expected if name in expected else actual)[name]!r}"
            else:
                yield from differs(expected[name], actual[name], f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differs(one, other, f"{path}[{index}]")
    elif expected != actual:
        yield f"{path}: expected {expected!r}, found {actual!r}"
