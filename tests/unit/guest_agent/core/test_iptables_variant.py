# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from guest_agent.core.iptables_variant import IptablesFacts, IptablesPrograms, Variant, select_iptables


def programs(variant: Variant) -> IptablesPrograms:
    restore, save = (
        Path(f"/sbin/iptables-{variant.value}-restore"),
        Path(f"/sbin/iptables-{variant.value}-save"),
    )
    return IptablesPrograms(variant, restore, save, None, None)


LEGACY, NFT = programs(Variant.LEGACY), programs(Variant.NFT)


@pytest.mark.parametrize(
    ("installed", "possible", "rules", "expected"),
    [
        # No rules: the guest's default, which comes first.
        ((NFT, LEGACY), "legacy nft", "", NFT),
        ((LEGACY, NFT), "legacy nft", "", LEGACY),
        # Rules of one variant: this one.
        ((NFT, LEGACY), "legacy nft", "legacy", LEGACY),
        ((LEGACY, NFT), "legacy nft", "nft", NFT),
        # Rules of both: the guest's default.
        ((NFT, LEGACY), "legacy nft", "legacy nft", NFT),
        # The kernel lacks a variant.
        ((NFT, LEGACY), "legacy", "", LEGACY),
        ((LEGACY, NFT), "nft", "legacy", NFT),
        ((NFT,), "legacy", "", None),
        ((), "legacy nft", "", None),
    ],
)
def test_the_variant_in_use_is_preferred(
    installed: tuple[IptablesPrograms, ...], possible: str, rules: str, expected: IptablesPrograms | None
) -> None:
    facts = IptablesFacts(
        installed=installed,
        is_legacy_possible="legacy" in possible,
        is_nft_possible="nft" in possible,
        has_legacy_rules="legacy" in rules,
        has_nft_rules="nft" in rules,
    )
    assert select_iptables(facts) is expected
