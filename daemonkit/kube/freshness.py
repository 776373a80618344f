# SPDX-License-Identifier: Apache-2.0
"""How current the objects of some reflectors are, as a line of /readyz and a part of /status. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from daemonkit.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last list or watch failed, since when (reflector's clock), and a refusal's HTTP code."""

    message: str
    since: float
    code: int = 0


class FreshnessSource(Protocol):
    """The part of a `Reflector` that is shown."""

    @property
    def resource(self) -> Resource: ...
    @property
    def failure(self) -> Failure | None: ...
    def age_s(self, now: float | None = None) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Freshness:
    """Of one kind of objects.

    `age_s` is None before the first sync, `problem` is empty unless list or watch fail now.
    """

    age_s: float | None
    problem: str = ""
    failing_s: float = 0.0

    def line(self, name: str) -> str:
        because = f"; cannot be read for {self.failing_s:.0f} s: {self.problem}" if self.problem else ""
        if self.age_s is None:
            return f"{name}: not synced{because}"
        return f"{name}: {'stale' if self.problem else 'ok'}, age {self.age_s:.0f} s{because}"

    def wait_reason(self, name: str) -> str:
        """Why the kind is not synced, without ages; empty if it is."""
        if self.age_s is not None:
            return ""
        return f"{name} not synced{f': {self.problem}' if self.problem else ''}"

    def document(self) -> dict[str, object]:
        """The same for machines."""
        found: dict[str, object] = {"ageSeconds": None if self.age_s is None else round(self.age_s, 3)}
        if self.problem:
            found["failure"] = {"message": self.problem, "seconds": round(self.failing_s, 3)}
        return found


def freshness_of(sources: Iterable[FreshnessSource], now: float) -> Freshness:
    """Of several reflectors: the oldest age, and the longest failure."""
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
    return Freshness(age_s, f"{source.resource}: {failure.message}", now - failure.since)
