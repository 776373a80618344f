# SPDX-License-Identifier: Apache-2.0
"""docs/spec/tenant-cases.md has every case by its number, each with a test.

That a test which a page names exists is checked for all pages (test_links.py).
"""

from __future__ import annotations

import re

from tests.packages import ROOT

_ROW = re.compile(r"^\| (?P<number>[CD]\d+) \| .+ \| (?P<tests>.*`tests/[\w/]+\.py::test_\w+`.*) \|$")
PROBLEMS, DEFECTS = 16, 25


def test_every_case_has_a_test() -> None:
    lines = (ROOT / "docs" / "spec" / "tenant-cases.md").read_text().splitlines()
    found = [row["number"] for row in map(_ROW.match, lines) if row is not None]
    assert found == [
        *(f"C{number}" for number in range(1, PROBLEMS + 1)),
        *(f"D{number}" for number in range(1, DEFECTS + 1)),
    ]
