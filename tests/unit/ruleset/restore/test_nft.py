# SPDX-License-Identifier: Apache-2.0
from ruleset.model import Family
from ruleset.restore.nft import change

BEFORE = {
    "chain VCN-A": ("goto refuse",),
    "chain VCN-B": ("drop",),
    "chain nat-output": ("type nat hook output priority -95; policy accept;", "goto VCN-A"),
    "map services": ("type ipv4_addr : verdict", "10.0.0.1 : goto VCN-A", "10.0.0.2 : goto VCN-B"),
    "set old": ("type ipv4_addr",),
}
AFTER = {
    "chain VCN-A": ("drop", "goto VCN-C"),
    "chain VCN-C": ("drop",),
    "chain hooked": ("type filter hook output priority filter; policy accept;", "drop"),
    "chain nat-output": ("type nat hook output priority -95; policy accept;", "goto VCN-A"),
    "map services": ("type ipv4_addr : verdict", "10.0.0.1 : goto VCN-C", "10.0.0.3 : goto VCN-A"),
    "set new": ("type ipv4_addr", "size 16", "flags dynamic,timeout", "timeout 3h"),
}


def test_commands_are_written_out() -> None:
    assert (
        change(Family.IPV4, BEFORE, AFTER)
        == """\
add set ip vcnode new { type ipv4_addr; size 16; flags dynamic,timeout; timeout 3h; }
add chain ip vcnode VCN-C
add chain ip vcnode hooked { type filter hook output priority filter; policy accept; }
flush chain ip vcnode VCN-A
flush chain ip vcnode VCN-B
delete element ip vcnode services { 10.0.0.1, 10.0.0.2 }
add rule ip vcnode VCN-A drop
add rule ip vcnode VCN-A goto VCN-C
add rule ip vcnode VCN-C drop
add rule ip vcnode hooked drop
add element ip vcnode services { 10.0.0.1 : goto VCN-C, 10.0.0.3 : goto VCN-A }
delete chain ip vcnode VCN-B
delete set ip vcnode old
"""
    )


def test_equal_tables_need_no_command() -> None:
    assert change(Family.IPV6, AFTER, AFTER) == ""


def test_changed_definition_has_no_commands() -> None:
    """nft cannot change it; the caller replaces the table."""
    longer = {"set new": ("type ipv4_addr", "size 16", "flags dynamic,timeout", "timeout 1h")}
    assert change(Family.IPV4, {"set new": AFTER["set new"]}, longer) is None
    elsewhere = {"chain nat-output": ("type nat hook output priority -90; policy accept;", "goto VCN-A")}
    assert change(Family.IPV4, {"chain nat-output": BEFORE["chain nat-output"]}, elsewhere) is None
