# SPDX-License-Identifier: Apache-2.0
import pytest

from vcnode.program import can_show_colors


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
    ],
)
def test_colours_need_a_terminal_and_no_objection(
    environment: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    assert can_show_colors(environment, is_terminal=is_terminal) is expected
