# SPDX-License-Identifier: Apache-2.0
"""The port through which the agent uses a packet filter, whichever the guest has."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ruleset.installed.rules import InstalledRules
from ruleset.model import Family
from ruleset.names import Backend

FilterKey = tuple[Family, Backend]
"""Names one packet filter: each document of a ruleset is loaded into one."""


class RulesRefusedError(Exception):
    """The packet filter refused a script: REFUSED on the wire. The text has the offending line."""


class FilterUnavailableError(Exception):
    """The packet filter cannot be used, or not now: FAILED on the wire. The text names what is missing."""


@dataclass(frozen=True, slots=True)
class RestoreScript:
    """A text of `ruleset.restore.script` for one packet filter."""

    key: FilterKey
    text: str


class PacketFilter(Protocol):
    """The packet filters of one network namespace. All methods raise `FilterUnavailableError`."""

    @property
    def supported(self) -> tuple[FilterKey, ...]:
        """The packet filters that work here, the best backend first."""
        ...

    def unsupported_message(self, key: FilterKey) -> str:
        """Why this packet filter does not work here, for a person; "" if it works."""
        ...

    def load(self, script: RestoreScript) -> None:
        """Load a script, in one transaction for each of its tables. Raises `RulesRefusedError`."""
        ...

    def read(self, key: FilterKey) -> InstalledRules:
        """Read our installed rules. Starts a process."""
        ...

    def quick_fingerprint(self, keys: Iterable[FilterKey]) -> object:
        """Differs after most changes of these packet filters. Costs microseconds."""
        ...

    def fingerprint(self, keys: Iterable[FilterKey], *, is_changed: bool = False) -> str:
        """Differs after every change of these packet filters, by anyone.

        Equal texts of one object mean equal rules. Costs a fraction of a millisecond where the kernel
        answers without a process. `is_changed`: the rules are known to have changed, so nothing is
        compared, and the text may differ in any case.
        """
        ...


def supported_backends(packet_filter: PacketFilter) -> tuple[str, ...]:
    """The names of the backends that work for any family, the best first."""
    return tuple(dict.fromkeys(backend.value for _, backend in packet_filter.supported))


def unsupported_family_message(packet_filter: PacketFilter, family: Family) -> str:
    """Why no backend works for this family, for a person; "" if one works."""
    messages = dict.fromkeys(packet_filter.unsupported_message((family, backend)) for backend in Backend)
    return "" if "" in messages else "; ".join(messages)
