# SPDX-License-Identifier: Apache-2.0
"""The refusals of one object, as they are found. Pure.

Values come from tenants and may be any JSON. What has not the form that Kubernetes gives it is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from syncer.core.plan import Refusal

# They go into an Event and a condition, which have 1 024 characters: more would be read by no person.
MAX_REFUSALS = 32
_MAX_TEXT = 128
_NO_ITEMS: Sequence[Any] = ()
_NO_FIELDS: Mapping[str, Any] = {}


class RefusalList:
    """Refusals in the order in which they were found, at most MAX_REFUSALS."""

    __slots__ = ("refusals",)

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def add(self, path: str, what: str, field: str = "") -> None:
        """Refuse the field at `path`. `field` is that of the SyncPolicy's spec that could allow it."""
        if len(self.refusals) < MAX_REFUSALS:
            how = f"SyncPolicy field spec.{field} does not allow it" if field else "no SyncPolicy allows it"
            self.refusals.append(Refusal(path, f"{what}: {how}"))

    def must(self, path: str, field: str) -> None:
        """Demand the field at `path`, because the SyncPolicy's spec has `field`."""
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append(Refusal(path, f"must be specified: SyncPolicy field spec.{field} limits it"))

    @property
    def is_full(self) -> bool:
        """Whether another refusal would not be kept."""
        return len(self.refusals) >= MAX_REFUSALS

    def items(self, path: str, value: Any) -> Sequence[Any]:
        """The items of a list; none if it is absent."""
        if type(value) is list:
            return value
        if value is not None:
            self.add(path, "is not a list")
        return _NO_ITEMS

    def fields(self, path: str, value: Any) -> Mapping[str, Any]:
        """The fields of an object; none if it is absent."""
        if type(value) is dict:
            return value
        if value is not None:
            self.add(path, "is not an object")
        return _NO_FIELDS

    def done(self) -> tuple[Refusal, ...]:
        return tuple(self.refusals)


def shown(value: Any) -> str:
    """A tenant's value for a message: short, on one line."""
    text = value if type(value) is str else f"({type(value).__name__})"
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 3] + "..."
    return text if text.isprintable() else ascii(text)[1:-1]


def text_of(value: Any) -> str:
    """A field that is a string; empty if it is absent. Another value is no name that a list allows."""
    if type(value) is str:
        return value
    return "" if value is None else shown(value)
