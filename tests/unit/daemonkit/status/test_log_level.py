# SPDX-License-Identifier: Apache-2.0
"""A change of the log level is in the log, whatever both levels are."""

import io

import pytest

from daemonkit import logs
from daemonkit.status import log_level


@pytest.mark.parametrize(
    ("before", "after", "is_logged"),
    [
        ("info", "debug", True),
        ("info", "error", True),
        ("error", "debug", True),
        ("error", "warning", True),
        ("error", "error", False),
    ],
)
def test_a_change_is_logged(before: str, after: str, is_logged: bool) -> None:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream, clock=lambda: 0, level=before)
    assert log_level.change({"level": after}) == ""
    assert log_level.document() == {"level": after, "configured": before}
    line = f'"log level changed" log_level={after} previous={before}\n'
    assert stream.getvalue().endswith(line) is is_logged


def test_an_unknown_level_changes_nothing() -> None:
    assert log_level.change({"level": "loud"}) == "level must be one of debug, info, warning, error"
    assert log_level.change({}) != ""
    assert log_level.document() == {"level": "info", "configured": "info"}
