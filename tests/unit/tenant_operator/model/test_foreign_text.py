# SPDX-License-Identifier: Apache-2.0
"""Text of others in one short line."""

import pytest

from tenant_operator.model.foreign_text import one_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n b\t\x1b]0;x\x07c", "a b ]0;xc"),
        ("x" * 1_000_000, "x" * 253),
        (ValueError("\u2028\u200bé"), "é"),
        ("", ""),
        ("\n" * 10_000 + "a", ""),
    ],
)
def test_text_is_one_short_line(text: object, expected: str) -> None:
    assert one_line(text) == expected


def test_a_limit_is_of_the_caller() -> None:
    assert one_line("abc\n" * 100, 5) == "abc a"
