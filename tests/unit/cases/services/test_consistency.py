# SPDX-License-Identifier: Apache-2.0
"""What a text can contradict itself in."""

import pytest

from tests.cases.services.consistency import problems


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (":A-B - [0:0]\n-A OUTPUT -j A-B\n-A A-B -j RETURN\n", ()),
        (":VCN-MARK-0123456789abcdef - [0:0]\n", ()),
        (
            "-A OUTPUT -j A-B\n",
            ("nat OUTPUT: a jump to A-B, which is not declared",),
        ),
        (":A-B - [0:0]\n", ("nat A-B: declared, and no rule jumps to it",)),
        (
            ":A-B - [0:0]\n:A-B - [0:0]\n-A OUTPUT -j A-B\n",
            ("line 3: nat A-B is declared again",),
        ),
        (
            "-A OUTPUT -j A-B\n-A A-B -j RETURN\n",
            (
                "line 3: a rule of nat A-B, which is not declared",
                "nat OUTPUT: a jump to A-B, which is not declared",
            ),
        ),
        (
            ":A-B - [0:0]\n-A OUTPUT -g A-B\n-A OUTPUT -g A-B\n",
            ("nat OUTPUT: 2 times the rule '-g A-B'",),
        ),
    ],
)
def test_inconsistent_texts_have_problems(body: str, expected: tuple[str, ...]) -> None:
    assert problems(f"*nat\n{body}COMMIT\n") == expected


def test_chains_belong_to_one_table() -> None:
    text = "*filter\n:A-B - [0:0]\n-A OUTPUT -j A-B\nCOMMIT\n*nat\n-A OUTPUT -j A-B\nCOMMIT\n"
    assert problems(text) == ("nat OUTPUT: a jump to A-B, which is not declared",)
