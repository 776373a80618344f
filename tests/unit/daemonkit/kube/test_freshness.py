# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import pytest

from daemonkit.kube.freshness import Failure, Freshness, freshness_of
from daemonkit.kube.resources import PODS, SERVICES, Resource
from daemonkit.remedies import Cause, Hop, HopKind

NOW = 1_000.0
HOP = Hop(HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/rbac/x.yaml")


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
            [FakeReflector(PODS, None, Failure("403: no", 995.0, 403, Cause.FORBIDDEN, "https://10.0.0.1"))],
            "x: not synced; cannot be read for 5 s: super cluster https://10.0.0.1: pods: 403: no; apply"
            " packaging/rbac/x.yaml, bound to the user of superCluster.kubeconfigFile",
            {
                "ageSeconds": None,
                "failure": {
                    "message": "super cluster https://10.0.0.1: pods: 403: no",
                    "seconds": 5.0,
                    "hop": "super cluster https://10.0.0.1",
                    "reason": "Forbidden",
                    "error": "pods: 403: no",
                    "remedy": "apply packaging/rbac/x.yaml, bound to the user of superCluster.kubeconfigFile",
                },
            },
        ),
        (
            [
                FakeReflector(PODS, 900.0, Failure("404: gone", 920.0, 404)),
                FakeReflector(SERVICES, 900.0, Failure("404: gone", 910.0, 404)),
                FakeReflector(PODS, 999.0),
            ],
            "x: stale, age 100 s; cannot be read for 90 s: super cluster: services: 404: gone; see this"
            " daemon's log",
            {
                "ageSeconds": 100.0,
                "failure": {
                    "message": "super cluster: services: 404: gone",
                    "seconds": 90.0,
                    "hop": "super cluster",
                    "reason": "Unknown",
                    "error": "services: 404: gone",
                    "remedy": "see this daemon's log",
                },
            },
        ),
    ],
)
def test_line_and_document_show_age_and_failure(
    reflectors: list[FakeReflector], line: str, document: dict[str, object]
) -> None:
    found: Freshness = freshness_of(reflectors, NOW, HOP)
    assert found.line("x") == line
    assert found.document() == document


def test_the_reason_to_wait_has_no_age() -> None:
    failing = FakeReflector(PODS, None, Failure("connection refused", 995.0, 0, Cause.REFUSED, "https://a"))
    assert freshness_of([failing], NOW, HOP).wait_reason("x") == (
        "x not synced: super cluster https://a: pods: connection refused"
    )
    assert freshness_of([], NOW, HOP).wait_reason("x") == "x not synced"
    assert freshness_of([FakeReflector(PODS, 1.0)], NOW, HOP).wait_reason("x") == ""
