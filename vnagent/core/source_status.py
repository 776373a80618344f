# SPDX-License-Identifier: Apache-2.0
"""How current a source is, as a line of /readyz and as a part of /status."""

from dataclasses import dataclass

from daemonkit.remedies import Fault


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a source cannot be read, and for how long."""

    fault: Fault
    for_s: float


@dataclass(frozen=True, slots=True)
class Retained:
    """Tenants that are served though their source lacks them, and tenants whose client list is missing."""

    tenants: tuple[str, ...]
    for_s: float
    client_lists: tuple[str, ...] = ()

    def subject(self) -> str:
        parts = []
        if self.tenants:
            parts.append(f"{len(self.tenants)} tenants")
        if self.client_lists:
            parts.append(f"the vn-agent-clients of {len(self.client_lists)} tenants")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source. `age_s` is None before it has synced; saved state counts from when it was saved."""

    name: str
    age_s: float | None
    is_saved: bool = False
    failure: Failure | None = None
    retained: Retained | None = None

    def line(self) -> str:
        return f"{self.name}: {self._state()}{self._failure_text()}"

    def _state(self) -> str:
        if self.age_s is None:
            return "not synced"
        if self.is_saved:
            return f"saved state, age {self.age_s:.0f} s"
        if self.retained is not None:
            return (
                f"degraded, age {self.age_s:.0f} s; {self.retained.subject()} are missing from the source and"
                f" retained for {self.retained.for_s:.0f} s: restore them, or run `vcnode tenant release`"
            )
        return f"{'ok' if self.failure is None else 'stale'}, age {self.age_s:.0f} s"

    def _failure_text(self) -> str:
        if self.failure is None:
            return ""
        fault = self.failure.fault
        return f"; cannot be read for {self.failure.for_s:.0f} s: {fault.text}; {fault.remedy}"

    def wait_reason(self) -> str:
        """Why it is not synced, without ages; empty if it is."""
        if self.age_s is not None:
            return ""
        return f"{self.name} not synced{'' if self.failure is None else f': {self.failure.fault.text}'}"

    def document(self) -> dict[str, object]:
        """The same for machines."""
        found: dict[str, object] = {
            "ageSeconds": None if self.age_s is None else round(self.age_s, 3),
            "isSavedState": self.is_saved,
        }
        if self.failure is not None:
            found["failure"] = self.failure.fault.failure_document(self.failure.for_s)
        if self.retained is not None:
            retained: dict[str, object] = {
                "tenants": self.retained.tenants,
                "seconds": round(self.retained.for_s, 3),
            }
            if self.retained.client_lists:
                retained["clientLists"] = self.retained.client_lists
            found["retained"] = retained
        return found
