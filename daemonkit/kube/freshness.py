# SPDX-License-Identifier: Apache-2.0
"""How current the objects of some reflectors are, as a line of /readyz and a part of /status. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from daemonkit.kube.resources import Resource
from daemonkit.remedies import Cause, Fault, Hop


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last list or watch failed, since when (reflector's clock), and a refusal's HTTP code.

    `server` is the URL of the API server, empty if there is none yet.
    """

    message: str
    since: float
    code: int = 0
    cause: Cause = Cause.OTHER
    server: str = ""

    def fault(self, hop: Hop, resource: str) -> Fault:
        """The failure as an operator reads it; `hop` is the API server as the configuration names it."""
        return hop.fault(self.cause, f"{resource}: {self.message}", self.server)


class FreshnessSource(Protocol):
    """The part of a `Reflector` that is shown."""

    @property
    def resource(self) -> Resource: ...
    @property
    def failure(self) -> Failure | None: ...
    def age_s(self, now: float | None = None) -> float | None: ...


class Freshness(msgspec.Struct, frozen=True):
    """Of one kind of objects.

    `age_s` is None before the first sync, `fault` is why list or watch fail now, for `failing_s` already.
    """

    age_s: float | None
    fault: Fault | None = None
    failing_s: float = 0.0

    @property
    def because(self) -> str:
        """The part of a line with the failure and its remedy."""
        if self.fault is None:
            return ""
        return f"; cannot be read for {self.failing_s:.0f} s: {self.fault.text}; {self.fault.remedy}"

    def line(self, name: str) -> str:
        if self.age_s is None:
            return f"{name}: not synced{self.because}"
        return f"{name}: {'ok' if self.fault is None else 'stale'}, age {self.age_s:.0f} s{self.because}"

    def wait_reason(self, name: str) -> str:
        """Why the kind is not synced, without ages; empty if it is."""
        if self.age_s is not None:
            return ""
        return f"{name} not synced{'' if self.fault is None else f': {self.fault.text}'}"

    def document(self) -> dict[str, object]:
        """The same for machines."""
        found: dict[str, object] = {"ageSeconds": None if self.age_s is None else round(self.age_s, 3)}
        if self.fault is not None:
            found["failure"] = self.fault.failure_document(self.failing_s)
        return found


def freshness_of(sources: Iterable[FreshnessSource], now: float, hop: Hop) -> Freshness:
    """Of several reflectors of the API server `hop`: the oldest age, and the longest failure."""
    ages: list[float | None] = []
    worst: tuple[FreshnessSource, Failure] | None = None
    for each in sources:
        ages.append(each.age_s(now))
        failure = each.failure
        if failure is not None and (worst is None or failure.since < worst[1].since):
            worst = each, failure
    known = [age for age in ages if age is not None]
    age_s = max(known) if known and len(known) == len(ages) else None
    if worst is None:
        return Freshness(age_s)
    source, failure = worst
    return Freshness(age_s, failure.fault(hop, str(source.resource)), now - failure.since)
