# SPDX-License-Identifier: Apache-2.0
import pytest

from ruleset.syntax.lines import MAX_LINE_CHARACTERS, BadDocument, check_line


@pytest.mark.parametrize(
    "line", ["", " a", "a ", "a\nb", "a\tb", "ä", "a\x7f", "x" * (MAX_LINE_CHARACTERS + 1)]
)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(BadDocument):
        check_line(line)


def test_plain_line_is_accepted() -> None:
    check_line("-j DROP")
    check_line("x" * MAX_LINE_CHARACTERS)


def test_error_names_the_line_and_shortens_it() -> None:
    assert str(BadDocument(3, "-j X", "no")) == "line 3: no: '-j X'"
    assert str(BadDocument(0, "y" * 300, "no")) == f"no: '{'y' * 200}...'"
