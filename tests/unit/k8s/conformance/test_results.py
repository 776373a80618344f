# SPDX-License-Identifier: Apache-2.0
"""Results of specs, and the table."""

from tests.k8s.conformance.results import SpecResult, Totals, differences, results, table, totals

_REPORT = [
    {
        "SpecReports": [
            {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
            {
                "LeafNodeType": "It",
                "ContainerHierarchyTexts": ["[sig-node] Pods", "when created"],
                "LeafNodeText": "should run [NodeConformance] [Conformance]",
                "State": "passed",
                "RunTime": 2_500_000_000,
            },
            {
                "LeafNodeType": "It",
                "ContainerHierarchyTexts": ["[sig-apps] Job"],
                "LeafNodeText": "should end [Conformance]",
                "State": "failed",
                "RunTime": 1_000_000_000,
                "Failure": {"Message": "timed out\n  waiting"},
            },
            {
                "LeafNodeType": "It",
                "ContainerHierarchyTexts": ["[sig-apps] Job"],
                "LeafNodeText": "is not in the focus",
                "State": "skipped",
            },
            {
                "LeafNodeType": "It",
                "ContainerHierarchyTexts": ["[sig-apps] Job"],
                "LeafNodeText": "needs more nodes [Conformance]",
                "State": "skipped",
                "Failure": {"Message": "requires 3 nodes"},
            },
        ]
    }
]
_PODS = SpecResult("node", "Pods when created should run", "passed", 2.5)
_JOB = SpecResult("apps", "Job should end", "failed", 1.0, "timed out\n  waiting")
_SKIPPED = SpecResult("apps", "Job needs more nodes", "skipped", 0.0, "requires 3 nodes")


def test_results_are_read() -> None:
    assert results(_REPORT) == [_SKIPPED, _JOB, _PODS]


def test_totals() -> None:
    assert totals([_SKIPPED, _JOB, _PODS]) == Totals(run=2, passed=1, failed=1, skipped=1)


def test_table() -> None:
    passed = SpecResult("apps", "Job should end", "passed", 1.0)
    assert table({"bare": [passed, _PODS], "tenant": [_SKIPPED, _JOB, _PODS]}).splitlines() == [
        "| area | bare: run | passed | failed | skipped | tenant: run | passed | failed | skipped |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| sig-apps | 1 | 1 | 0 | 0 | 1 | 0 | 1 | 1 |",
        "| sig-node | 1 | 1 | 0 | 0 | 1 | 1 | 0 | 0 |",
        "| **all** | 2 | 2 | 0 | 0 | 2 | 1 | 1 | 1 |",
    ]


def test_differences() -> None:
    passed = SpecResult("apps", "Job should end", "passed", 1.0)
    assert differences({"bare": [passed, _PODS], "tenant": [_SKIPPED, _JOB, _PODS]}) == [
        "sig-apps Job should end: bare passed, tenant failed",
        "    tenant: timed out waiting",
    ]
