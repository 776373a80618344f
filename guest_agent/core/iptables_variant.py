# SPDX-License-Identifier: Apache-2.0
"""Selects one of a guest's iptables.

Legacy iptables and iptables-nft have separate rules, and neither shows those of the other. A mesh in
the guest uses one of them. Our hooks must stand behind its hooks, so we use the same one. Without any
rules we use the guest's default: the program behind the plain name `iptables`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath


class Variant(enum.Enum):
    LEGACY = "legacy"
    NFT = "nft"


@dataclass(frozen=True, slots=True)
class IptablesPrograms:
    """The programs of one variant that the guest has."""

    variant: Variant
    restore: PurePath
    save: PurePath
    restore6: PurePath | None
    save6: PurePath | None


@dataclass(frozen=True, slots=True)
class IptablesFacts:
    """What was found in a guest.

    `installed` begins with the guest's default. `is_legacy_possible` and `is_nft_possible`: the kernel
    has what the variant needs. `has_legacy_rules` and `has_nft_rules`: rules of anyone, ours included.
    """

    installed: Sequence[IptablesPrograms]
    is_legacy_possible: bool
    is_nft_possible: bool
    has_legacy_rules: bool
    has_nft_rules: bool


def select_iptables(facts: IptablesFacts) -> IptablesPrograms | None:
    """The programs to use; None if none works."""
    possible = {Variant.LEGACY: facts.is_legacy_possible, Variant.NFT: facts.is_nft_possible}
    has_rules = {Variant.LEGACY: facts.has_legacy_rules, Variant.NFT: facts.has_nft_rules}
    working = [each for each in facts.installed if possible[each.variant]]
    in_use = [each for each in working if has_rules[each.variant]]
    return next(iter([*in_use, *working]), None)
