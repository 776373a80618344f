# SPDX-License-Identifier: Apache-2.0
import pytest

from vcnode.core.findings import Finding, Level, as_json, exit_code, failed, render, warning

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


@pytest.mark.parametrize(
    ("found", "of_check", "of_doctor"),
    [
        ([], 0, 0),
        ([OK], 0, 1),
        ([OK, WARNING], 0, 1),
        ([OK, FAILED], 1, 1),
        ([UNKNOWN], 3, 3),
        ([UNKNOWN, FAILED], 1, 1),
        ([UNKNOWN, WARNING], 3, 1),
    ],
)
def test_exit_code_by_the_allowed_levels(found: list[Finding], of_check: int, of_doctor: int) -> None:
    assert exit_code(found, allowed=frozenset({Level.OK, Level.WARNING})) == of_check
    assert exit_code(found, allowed=frozenset()) == of_doctor
