# SPDX-License-Identifier: Apache-2.0
import pytest

from vcnode.core.findings import Finding, Level, as_json, failed, render, verdict, warning
from vcnode.terminal import Style, Styled

OK = Finding("clock", Level.OK, "synchronized")
UNKNOWN = Finding("probe", Level.UNKNOWN, "kubelet: no result in time", "run it again")
FAILED = failed("port", "10550 is held", "stop that process")
WARNING = warning("disk", "10 MiB free", "free space")


def test_each_finding_is_a_line_and_its_remedy() -> None:
    assert render([OK, FAILED, UNKNOWN]) == [
        "ok       clock  synchronized",
        "failed   port   10550 is held",
        "    -> stop that process",
        "unknown  probe  kubelet: no result in time",
        "    -> run it again",
    ]
    assert as_json([FAILED]) == [
        {"check": "port", "level": "failed", "message": "10550 is held", "remedy": "stop that process"}
    ]


def test_long_findings_fold_below_their_message() -> None:
    found = failed("kubelet", "10.0.0.11:10250 does not know the client", "issue its certificate anew")
    lines = render([found, OK], 44)
    assert lines == [
        "failed  kubelet  10.0.0.11:10250 does not",
        "                 know the client",
        "    -> issue its certificate anew",
        "ok      clock    synchronized",
    ]
    (first, last) = (lines[0], lines[3])
    assert isinstance(first, Styled)
    assert isinstance(last, Styled)
    assert (first.spans, last.spans) == (((0, 6, Style.BAD),), ((0, 2, Style.GOOD),))


@pytest.mark.parametrize(
    ("found", "of_check", "of_doctor"),
    [
        ([], True, True),
        ([OK], True, False),
        ([OK, WARNING], True, False),
        ([OK, FAILED], False, False),
        ([UNKNOWN], None, None),
        ([UNKNOWN, FAILED], False, False),
        ([UNKNOWN, WARNING], None, False),
    ],
)
def test_verdict_by_the_allowed_levels(
    found: list[Finding], of_check: bool | None, of_doctor: bool | None
) -> None:
    assert verdict(found, allowed=frozenset({Level.OK, Level.WARNING})) is of_check
    assert verdict(found, allowed=frozenset()) is of_doctor
