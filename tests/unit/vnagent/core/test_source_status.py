# SPDX-License-Identifier: Apache-2.0
"""How current a source is, for people and for machines."""

import pytest

from vnagent.core.source_status import Failure, Retained, SourceStatus

FAILURE = Failure("/t: No such file or directory", 5.25)
RETAINED = Retained(("ten-a", "ten-b"), 61.5)


@pytest.mark.parametrize(
    ("status", "line", "document"),
    [
        (SourceStatus("pods", None), "pods: not synced", {"ageSeconds": None, "isSavedState": False}),
        (
            SourceStatus("tenants", None, failure=FAILURE),
            "tenants: not synced; cannot be read for 5 s: /t: No such file or directory",
            {
                "ageSeconds": None,
                "isSavedState": False,
                "failure": {"message": FAILURE.message, "seconds": 5.25},
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
            "tenants: stale, age 6 s; cannot be read for 5 s: /t: No such file or directory",
            {
                "ageSeconds": 6.0,
                "isSavedState": False,
                "failure": {"message": FAILURE.message, "seconds": 5.25},
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
