# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/spec/sync-policy.md, from the code that judges.

The page is text by hand between tables. Each stands between two comments, of which the first names it.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from syncer.policy import metadata_keys
from syncer.policy.controls import CONTROLS
from syncer.policy.document import SECTIONS
from syncer.policy.fields import FIELDS, KINDS, FieldVerdict
from syncer.policy.patterns import Patterns
from syncer.policy.shown_fields import CONDITIONS, PARTS, SHOWN, Shown
from syncer.policy.sync_policy import DEFAULT
from tests.packages import ROOT

PATH = ROOT / "docs" / "spec" / "sync-policy.md"

_BEGIN, _BEGIN_END, _END = "<!-- made by `make reference`: ", " -->", "<!-- end -->"
_MANY = 16


def page(text: str) -> str:
    """The page with its tables made anew. Raises KeyError for the name of no table."""
    made: list[str] = []
    is_old = False
    for line in text.splitlines():
        if is_old and line != _END:
            continue
        is_old = False
        made.append(line)
        if (name := _name_in(line)) is not None:
            made += ["", *TABLES[name]().splitlines(), ""]
            is_old = True
    return "\n".join(made) + "\n"


def missing(text: str) -> list[str]:
    """The names of tables that the page does not have."""
    return sorted(TABLES.keys() - {_name_in(line) for line in text.splitlines()})


def _name_in(line: str) -> str | None:
    """The name of the table that begins with this line."""
    if not line.startswith(_BEGIN):
        return None
    return line.removeprefix(_BEGIN).removesuffix(_BEGIN_END)


def _controls(section: str) -> Callable[[], str]:
    def table() -> str:
        attribute, _, parsers = SECTIONS[section]
        policy = getattr(DEFAULT, attribute)
        return _table(
            (f"field of `spec.{section}`", "governs", "default", "why"),
            (
                (
                    f"`{name}`",
                    CONTROLS[f"{section}.{name}"].governs,
                    _shown(getattr(policy, field)),
                    CONTROLS[f"{section}.{name}"].reason,
                )
                for name, (field, _) in parsers.items()
            ),
        )

    return table


def _keys(pairs: tuple[tuple[str, str], ...]) -> Callable[[], str]:
    return lambda: _table(("keys", "why"), ((f"`{key}`", why) for key, why in pairs))


def _denied(section: str) -> Callable[[], str]:
    def listed() -> str:
        found = getattr(DEFAULT, SECTIONS[section][0]).denied_annotations
        return ", ".join(f"`{each}`" for each in found.entries) + "\n"

    return listed


def _fields() -> str:
    """Of each kind, what is not simply allowed. Paths have no indices."""
    rows: list[tuple[str, str, str]] = []
    for verdict in (FieldVerdict.CHANGED, FieldVerdict.JUDGED, FieldVerdict.STAYS):
        for type_name, found in FIELDS.items():
            rows += [
                (f"`{type_name}.{name}`", verdict.value, field.how)
                for name, field in found.items()
                if field.verdict is verdict
            ]
    every = [field for found in FIELDS.values() for field in found.values()]
    allowed = sum(each.verdict is FieldVerdict.ALLOWED for each in every)
    count = f"{len(every)} fields of {len(FIELDS)} types, of which {allowed} are allowed as they are"
    return f"{count}: of {', '.join(KINDS)}.\n\n" + _table(
        ("field", "what becomes of it", "how, or what allows it"), rows
    )


def _shown_fields() -> str:
    """Of the types of each status, what does not come up as it is."""
    rows: list[tuple[str, str, str]] = []
    for verdict in (Shown.MAPPED, Shown.LEFT_OUT):
        for type_name, found in SHOWN.items():
            rows += [
                (f"`{type_name}.{name}`", verdict.value, field.how)
                for name, field in found.items()
                if field.verdict is verdict
            ]
    every = [field for found in SHOWN.values() for field in found.values()]
    copied = sum(each.verdict is Shown.COPIED for each in every)
    count = f"{len(every)} fields of {len(SHOWN)} types, of which {copied} come up as they are"
    return f"{count}: of {', '.join(PARTS)}.\n\n" + _table(
        ("field", "what becomes of it", "how, or why"), rows
    )


def _shown_conditions() -> str:
    return _table(
        ("conditions", "of these types come up"),
        (
            (f"`{type_name}`", ", ".join(f"`{each}`" for each in sorted(types)))
            for type_name, types in CONDITIONS.items()
        ),
    )


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return (
        "".join(f"| {' | '.join(each)} |\n".replace("|  |", "| |") for each in lines)
        .replace("| --- ", "|---")
        .replace("|--- |", "|---|")
    )


def _shown(value: Any) -> str:
    """A default, for people."""
    if value is None:
        return "all"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f"`{value}`" if value else "none"
    return _shown_list(list(_entries(value)))


def _entries(value: Any) -> Iterator[str]:
    listed = value.entries if isinstance(value, Patterns) else value
    texts = [str(each) for each in listed if each != ""]
    yield from texts if isinstance(listed, tuple) else sorted(texts)


def _shown_list(entries: list[str]) -> str:
    if len(entries) > _MANY:
        return "listed below"
    return ", ".join(f"`{each}`" for each in entries) or "none"


TABLES: Mapping[str, Callable[[], str]] = {
    **{f"controls {section}": _controls(section) for section in SECTIONS},
    **{f"denied {section}": _denied(section) for section in ("pods", "services", "ingresses")},
    "harmless keys": _keys(metadata_keys.HARMLESS),
    "unreported keys": _keys(metadata_keys.UNREPORTED),
    "keys that an Ingress may lack": _keys(metadata_keys.HARMLESS_WITHOUT),
    "fields": _fields,
    "shown fields": _shown_fields,
    "shown conditions": _shown_conditions,
}
"""By the name in the page's comments."""
