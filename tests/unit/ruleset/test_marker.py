# SPDX-License-Identifier: Apache-2.0
import pytest

from ruleset.marker import agreed, is_mark_object, mark
from ruleset.names import is_our_chain


def test_marker_is_a_chain_of_ours() -> None:
    assert mark("0123456789abcdef" * 4) == "VCN-MARK-0123456789abcdef"
    assert is_our_chain(mark("f" * 64))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nat/VCN-MARK-0123456789abcdef", True),
        ("chain VCN-MARK-0123456789abcdef", True),
        ("nat/VCN-SERVICES", False),
        ("chain nat-output", False),
        ("VCN-MARK-0123456789abcdef", False),
    ],
)
def test_objects_that_are_markers(name: str, expected: bool) -> None:
    assert is_mark_object(name) is expected


def test_tables_have_to_agree() -> None:
    one, other = frozenset({"VCN-MARK-1"}), frozenset({"VCN-MARK-2"})
    assert agreed([one, one]) == "VCN-MARK-1"
    assert agreed([one, other]) == ""
    assert agreed([one, frozenset()]) == ""
    assert agreed([one | other, one | other]) == ""
    assert agreed([]) == ""
