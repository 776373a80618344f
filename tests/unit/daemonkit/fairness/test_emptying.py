# SPDX-License-Identifier: Apache-2.0
from collections import OrderedDict, deque

import pytest

from daemonkit.fairness.emptying import AT_ONCE, Holder, emptied
from tests.steps import most_in_a_step

MANY = 3 * AT_ONCE


class _Ending:
    ended = 0

    def __del__(self) -> None:
        _Ending.ended += 1


def _endings() -> list[_Ending]:
    return [_Ending() for _ in range(MANY)]


@pytest.mark.parametrize(
    "holder",
    [
        _endings(),
        deque(_endings()),
        set(_endings()),
        dict.fromkeys(_endings()),
        OrderedDict.fromkeys(_endings()),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_what_a_holder_has_ends_in_steps(holder: Holder) -> None:
    """10 000 cached objects ended at once took 5 to 12 ms, and 30 000 more than 20."""
    _Ending.ended = 0
    assert most_in_a_step(emptied(holder), lambda: _Ending.ended) == AT_ONCE
    assert (len(holder), _Ending.ended) == (0, MANY)


def test_what_many_holders_have_ends_in_common_steps() -> None:
    holders = [[_Ending()] for _ in range(MANY)]
    _Ending.ended = 0
    assert most_in_a_step(emptied(*holders), lambda: _Ending.ended) == AT_ONCE
    assert list(emptied()) == []
