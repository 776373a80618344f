# SPDX-License-Identifier: Apache-2.0
"""Which specs a run has."""

import pytest

from tests.k8s.conformance.selection import pattern


@pytest.mark.parametrize(
    ("focus", "expected"),
    [
        ("", r"\[Conformance\]"),
        ("node", r"(?:\[sig-node\]).*\[Conformance\]"),
        ("api-machinery", r"(?:\[sig-api-machinery\]).*\[Conformance\]"),
        ("Job should|CronJob", r"(?:Job should|CronJob).*\[Conformance\]"),
    ],
)
def test_pattern(focus: str, expected: str) -> None:
    assert pattern(focus) == expected
