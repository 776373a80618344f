# SPDX-License-Identifier: Apache-2.0
"""Both sides of one planned object: its cached forms, its contents, or its versions. Pure."""

from typing import Generic, NamedTuple, TypeVar

from syncer.core.plan import Side

T = TypeVar("T")


class Pair(NamedTuple, Generic[T]):
    """What the tenant has and what the super cluster has; None where a side has nothing."""

    tenant: T | None
    super: T | None

    def of(self, side: Side) -> T | None:
        return self.tenant if side is Side.TENANT else self.super

    def other(self, side: Side) -> T | None:
        """What the other side has."""
        return self.super if side is Side.TENANT else self.tenant

    def replaced(self, side: Side, value: T) -> "Pair[T]":
        """The pair with another value on this side."""
        return Pair(value, self.super) if side is Side.TENANT else Pair(self.tenant, value)

    @property
    def is_empty(self) -> bool:
        """Whether neither side has anything."""
        return self.tenant is None and self.super is None

    @property
    def is_whole(self) -> bool:
        """Whether both sides have something."""
        return self.tenant is not None and self.super is not None
