# SPDX-License-Identifier: Apache-2.0
"""What the agent asks of a packet filter, whichever the guest has."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ruleset.installed.rules import InstalledRules
from ruleset.model import Family
from ruleset.names import Backend

Place = tuple[Family, Backend]
"""Where a document goes."""


class Refused(Exception):  # noqa: N818 - an outcome, named as on the wire
    """The packet filter read what it was given and said no. The text has the offending line."""


class Broken(Exception):  # noqa: N818 - an outcome: FAILED on the wire
    """The packet filter cannot be used at all, or not now; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Change:
    """A text of `ruleset.restore.script`, and where it is to be loaded."""

    place: Place
    text: str


class PacketFilter(Protocol):
    """The packet filters of one network namespace. All methods raise `Broken`."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Where documents can go, the best backend first."""
        ...

    def why_not(self, place: Place) -> str:
        """Why documents cannot go there, for a person; "" where they can."""
        ...

    def load(self, change: Change) -> None:
        """Load a text, in one transaction for each of its tables. Raises `Refused`."""
        ...

    def held(self, place: Place) -> InstalledRules:
        """Read what is ours. Costs a process."""
        ...

    def glance(self, places: Iterable[Place]) -> object:
        """Something that is another after most changes of these packet filters. Costs microseconds."""
        ...

    def fingerprint(self, places: Iterable[Place], *, is_changed: bool = False) -> str:
        """Something that is another after every change of these packet filters, whoever's.

        The same text of the same object means the same rules. Costs a fraction of a millisecond
        where the kernel can be asked without a process. `is_changed`: the rules are known to have
        changed, so that there is nothing to compare them with; the text may be another in any case.
        """
        ...
