# SPDX-License-Identifier: Apache-2.0
"""The condition `DeletionsHeld` of a VirtualCluster: what is held on each side, and the tokens. Pure.

A restart finds the tokens in it: a person who was asked for one need not be asked for another.
"""

import re
from collections.abc import Mapping

from syncer.core.deletion_guard import Hold
from syncer.core.plan import Side
from tenancy import keys

REASON = "DeletionsHeld"
# Of so many kinds the counts are shown: a condition is read in a terminal.
_MAX_KINDS = 8

_TOKEN = re.compile(rf"(super|tenant) cluster: {re.escape(keys.RELEASE_HELD)}=([0-9a-f]{{1,64}}) ")


def message_of(holds: Mapping[Side, Hold]) -> str:
    """The message of the condition; empty without holds."""
    return ". ".join(_side_message(side, hold) for side, hold in sorted(holds.items()))


def tokens_in(message: str) -> dict[Side, str]:
    """The tokens that a condition names, by the side where objects are kept."""
    return {Side(found[1]): found[2] for found in _TOKEN.finditer(message)}


def _side_message(side: Side, hold: Hold) -> str:
    other = Side.TENANT if side is Side.SUPER else Side.SUPER
    kinds = ", ".join(f"{each.kind} {each.missing} of {each.known}" for each in hold.counts[:_MAX_KINDS])
    more = ", and more" if len(hold.counts) > _MAX_KINDS else ""
    return (
        f"{side} cluster: {keys.RELEASE_HELD}={hold.token} deletes what is kept: the {other} cluster lacks "
        f"{hold.missing} of {hold.known} objects without a deletion event ({kinds}{more})"
    )
