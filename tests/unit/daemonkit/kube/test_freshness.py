# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import pytest

from daemonkit.kube.freshness import Failure, Freshness, freshness_of
from daemonkit.kube.resources import PODS, SERVICES, Resource

NOW = 1_000.0


@dataclass(frozen=True, slots=True)
class FakeReflector:
    resource: Resource
    listed_at: float | None
    failure: Failure | None = None

    def age_s(self, now: float | None = None) -> float | None:
        return None if self.listed_at is None or now is None else now - self.listed_at


@pytest.mark.parametrize(
    ("reflectors", "line", "document"),
    [
        ([], "x: not synced", {"ageSeconds": None}),
        (
            [FakeReflector(PODS, 998.0), FakeReflector(SERVICES, 990.0)],
            "x: ok, age 10 s",
            {"ageSeconds": 10.0},
        ),
        (
            [FakeReflector(PODS, 998.0), FakeReflector(SERVICES, None)],
            "x: not synced",
            {"ageSeconds": None},
        ),
        (
            [FakeReflector(PODS, None, Failure("403: no", 995.0, 403))],
            "x: not synced; cannot be read for 5 s: pods: 403: no",
            {"ageSeconds": None, "failure": {"message": "pods: 403: no", "seconds": 5.0}},
        ),
        (
            [
                FakeReflector(PODS, 900.0, Failure("404: gone", 920.0, 404)),
                FakeReflector(SERVICES, 900.0, Failure("404: gone", 910.0, 404)),
                FakeReflector(PODS, 999.0),
            ],
            "x: stale, age 100 s; cannot be read for 90 s: services: 404: gone",
            {"ageSeconds": 100.0, "failure": {"message": "services: 404: gone", "seconds": 90.0}},
        ),
    ],
)
def test_line_and_document_show_age_and_failure(
    reflectors: list[FakeReflector], line: str, document: dict[str, object]
) -> None:
    found: Freshness = freshness_of(reflectors, NOW)
    assert found.line("x") == line
    assert found.document() == document
