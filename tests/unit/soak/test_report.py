# SPDX-License-Identifier: Apache-2.0
"""The tables of a soak, written out."""

from dataclasses import replace

from tests.soak import report
from tests.soak.answers import FaultWindow, Violation
from tests.soak.growth import Growth, Trend


def test_requests_by_kind_and_failures_by_status() -> None:
    counts = [
        ("log", "ok", 20),
        ("log", "502 kubelet", 2),
        ("log", "502 other", 1),
        ("exec", "cut: reset", 1),
    ]
    assert report.requests(counts) == [
        "KIND  OK  FAILED  HOW",
        "exec  0   1       cut: reset (1)",
        "log   20  3       502 (3)",
    ]


def test_faults_with_their_recovery() -> None:
    windows = [FaultWindow("disk full", 1.0, 2.0, 2.0 + took_s, ()) for took_s in (0.5, 4.0, 1.0)]
    assert report.faults(windows) == [
        "FAULT      TIMES  RECOVERED AFTER  AT MOST",
        "disk full  3      1.0 s            4.0 s",
    ]


def test_daemons_first_and_last() -> None:
    grown = Growth("vn-agent", 60.0, 80, (22.71, 23.44), (35, 39), (2, 2), Trend(3.2, 0.5), Trend(9.0, 0.5))
    longer = replace(grown, daemon="dnsconfig", span_s=900.0, samples=300)
    assert report.daemons([grown, longer]) == [
        "DAEMON     SEEN FOR  SAMPLES  PSS MB        MB/HOUR  DESCRIPTORS  AN HOUR  THREADS",
        "vn-agent   60 s      80       22.7 -> 23.4  ?        35 -> 39     ?        2 -> 2",
        "dnsconfig  900 s     300      22.7 -> 23.4  +3.2     35 -> 39     +9.0     2 -> 2",
    ]


def test_equal_violations_are_counted() -> None:
    found = [Violation(1.0, "a"), Violation(2.0, "b"), Violation(3.0, "a")]
    assert report.violations(found) == ["VIOLATION at 1.0 s, 2 times: a", "VIOLATION at 2.0 s: b"]
