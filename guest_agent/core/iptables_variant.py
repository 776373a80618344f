# SPDX-License-Identifier: Apache-2.0
"""Which of a guest's iptables to use. Pure.

Legacy iptables and iptables-nft have rules of their own each, and neither sees the other's. A mesh
in the guest uses one of them, and our hooks must stand behind its own: in the same one. Where
nobody has rules, the guest's own choice is kept: what the plain name `iptables` leads to.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class Variant(enum.Enum):
    LEGACY = "legacy"
    NFT = "nft"


@dataclass(frozen=True, slots=True)
class Programs:
    """One variant's programs, as far as the guest has them."""

    variant: Variant
    restore: Path
    save: Path
    restore6: Path | None
    save6: Path | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found in a guest.

    `installed` has the guest's own choice first. `is_legacy_possible` and `is_nft_possible`: the
    kernel has what the variant needs. `has_legacy_rules`, `has_nft_rules`: rules of anyone, ours
    too.
    """

    installed: Sequence[Programs]
    is_legacy_possible: bool
    is_nft_possible: bool
    has_legacy_rules: bool
    has_nft_rules: bool


def chosen(facts: Facts) -> Programs | None:
    """The iptables to use, None if there is none that works."""
    possible = {Variant.LEGACY: facts.is_legacy_possible, Variant.NFT: facts.is_nft_possible}
    has_rules = {Variant.LEGACY: facts.has_legacy_rules, Variant.NFT: facts.has_nft_rules}
    working = [each for each in facts.installed if possible[each.variant]]
    in_use = [each for each in working if has_rules[each.variant]]
    return next(iter([*in_use, *working]), None)
