# SPDX-License-Identifier: Apache-2.0
"""What a VirtualCluster's condition says about held deletions, and what is read from it again."""

import pytest

from syncer.core.deletion_guard import Hold, HoldReason, KindCount
from syncer.core.held_condition import message_of, tokens_in
from syncer.core.plan import Side

HOLD = Hold(
    HoldReason.TOO_MANY_REMOVALS,
    7,
    9,
    (KindCount("ConfigMap", 3, 4), KindCount("Pod", 4, 5)),
    "ab12",
)


def test_the_message_names_the_token_and_the_counts() -> None:
    assert message_of({Side.SUPER: HOLD}) == (
        "super cluster: vcnode.io/release-held=ab12 deletes what is kept: the tenant cluster lacks 7 of 9 "
        "objects without a deletion event (ConfigMap 3 of 4, Pod 4 of 5)"
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (message_of({Side.SUPER: HOLD}), {Side.SUPER: "ab12"}),
        (message_of({Side.SUPER: HOLD, Side.TENANT: HOLD}), {Side.SUPER: "ab12", Side.TENANT: "ab12"}),
        (message_of({}), {}),
        ("super cluster: vcnode.io/release-held= deletes", {}),
        ("written by somebody else", {}),
    ],
)
def test_tokens_are_found_again(message: str, expected: dict[Side, str]) -> None:
    assert tokens_in(message) == expected
