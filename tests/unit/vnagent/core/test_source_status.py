# SPDX-License-Identifier: Apache-2.0
"""How current a source is, for people and for machines."""

import pytest

from daemonkit.remedies import Cause, Hop, HopKind
from vnagent.core.source_status import Failure, Retained, SourceStatus

FAULT = Hop(HopKind.FILE, "tenants.directory", "the directory").fault(Cause.MISSING, "no such file", "/t")
FAILURE = Failure(FAULT, 5.25)
DOCUMENT = {
    "message": "tenants.directory /t: no such file",
    "seconds": 5.25,
    "hop": "tenants.directory /t",
    "reason": "NotFound",
    "error": "no such file",
    "remedy": "make the directory, or correct the path in the configuration",
}
RETAINED = Retained(("ten-a", "ten-b"), 61.5)


@pytest.mark.parametrize(
    ("status", "line", "document"),
    [
        (SourceStatus("pods", None), "pods: not synced", {"ageSeconds": None, "isSavedState": False}),
        (
            SourceStatus("tenants", None, failure=FAILURE),
            "tenants: not synced; cannot be read for 5 s: tenants.directory /t: no such file;"
            " make the directory, or correct the path in the configuration",
            {
                "ageSeconds": None,
                "isSavedState": False,
                "failure": DOCUMENT,
            },
        ),
        (SourceStatus("pods", 0.4), "pods: ok, age 0 s", {"ageSeconds": 0.4, "isSavedState": False}),
        (
            SourceStatus("tenants", 100.0, is_saved=True),
            "tenants: saved state, age 100 s",
            {"ageSeconds": 100.0, "isSavedState": True},
        ),
        (
            SourceStatus("tenants", 6.0, failure=FAILURE),
            "tenants: stale, age 6 s; cannot be read for 5 s: tenants.directory /t: no such file;"
            " make the directory, or correct the path in the configuration",
            {
                "ageSeconds": 6.0,
                "isSavedState": False,
                "failure": DOCUMENT,
            },
        ),
        (
            SourceStatus("tenants", 0.0, retained=RETAINED),
            "tenants: degraded, age 0 s; 2 tenants are missing from the source and retained for 62 s:"
            " restore them, or run `vcnode tenant release`",
            {
                "ageSeconds": 0.0,
                "isSavedState": False,
                "retained": {"tenants": ("ten-a", "ten-b"), "seconds": 61.5},
            },
        ),
        (
            SourceStatus("tenants", 0.0, retained=Retained((), 2.0, ("ten-a", "ten-b"))),
            "tenants: degraded, age 0 s; the vn-agent-clients of 2 tenants are missing from the source and"
            " retained for 2 s: restore them, or run `vcnode tenant release`",
            {
                "ageSeconds": 0.0,
                "isSavedState": False,
                "retained": {"tenants": (), "seconds": 2.0, "clientLists": ("ten-a", "ten-b")},
            },
        ),
    ],
)
def test_lines_and_documents(status: SourceStatus, line: str, document: dict[str, object]) -> None:
    assert (status.line(), status.document()) == (line, document)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (SourceStatus("pods", 3.0, failure=FAILURE), ""),
        (SourceStatus("pods", None), "pods not synced"),
        (SourceStatus("pods", None, failure=FAILURE), "pods not synced: tenants.directory /t: no such file"),
    ],
)
def test_the_reason_to_wait_has_no_age(status: SourceStatus, reason: str) -> None:
    assert status.wait_reason() == reason
