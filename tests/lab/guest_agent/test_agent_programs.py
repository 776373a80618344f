# SPDX-License-Identifier: Apache-2.0
"""Guests without some program, library, or a writable lock file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kata_bridge.channels.port import GuestRefused, GuestState, NotInjectable, Unreachable
from ruleset.document import Document, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from tests.lab.guest_agent.conftest import LabNode, libnftables
from tests.lab.guest_agent.tools import LEGACY, NFT, attached, change, prepared, ruleset

pytestmark = pytest.mark.asyncio


def some_programs(directory: Path, *names: str) -> Path:
    """A /usr/sbin with these programs only."""
    directory.mkdir()
    for name in names:
        shutil.copy(Path("/usr/sbin", name).resolve(), directory / Path("/usr/sbin", name).resolve().name)
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(Path("/usr/sbin", name).resolve().name)
    return directory


V4 = ("iptables-legacy-restore", "iptables-legacy-save")


async def test_legacy_iptables_for_ipv4_is_enough(node: LabNode) -> None:
    guest = node.guest("sb")
    guest.programs = some_programs(node.directory / "sbin", *V4)
    guest.has_libnftables = False
    channel = await attached(node, guest, "sb")
    capabilities = await channel.probe()
    assert (capabilities.backends, capabilities.ipv6) == (("iptables",), False)
    with pytest.raises(Unreachable, match="no ip6tables-restore and -save beside it"):
        await channel.apply(ruleset(LEGACY, 1, 1, Family.IPV4, Family.IPV6), [])
    with pytest.raises(Unreachable, match="no libnftables, and no nft in"):
        await channel.apply(ruleset(NFT, 1, 1), [])
    first = ruleset(LEGACY, 1, 1)
    assert await channel.apply(first, []) == GuestState(1, first.digest, False)


async def test_a_guest_without_packet_filter_is_not_injectable(node: LabNode) -> None:
    guest = node.guest("sb")
    guest.programs = some_programs(node.directory / "sbin")
    guest.has_libnftables = False
    channel = await attached(node, guest, "sb")
    with pytest.raises(NotInjectable, match=r"no iptables-restore in .*; the guest has no libnftables"):
        await channel.probe()


async def test_the_nft_program_replaces_its_library(node: LabNode) -> None:
    """Our nft here needs a copy of the library to run."""
    guest = node.guest("sb")
    copy = node.directory / "nft"
    copy.mkdir()
    for path in (Path("/usr/sbin/nft"), libnftables()):
        shutil.copy(path, copy / path.name)
    (copy / libnftables().name).rename(copy / "libnftables.so.1")
    guest.programs = some_programs(node.directory / "sbin")
    (guest.programs / "nft").write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={copy} exec {copy}/nft "$@"\n')
    (guest.programs / "nft").chmod(0o755)
    guest.has_libnftables = False
    channel = await attached(node, guest, "sb")
    assert (await channel.probe()).backends == ("nft",)
    first, second = ruleset(NFT, 1, 2), ruleset(NFT, 2, 3)
    await channel.apply(first, [])
    assert await channel.apply(change(first, second), []) == GuestState(2, second.digest, False)
    (document,) = first.documents
    bad = {**document.objects, "chain nat-output": ("type nat hook output priority -95;", "goto NOWHERE")}
    with pytest.raises(GuestRefused, match=r"line \d+ is .*goto NOWHERE"):
        await channel.apply(make_ruleset(3, [Document(Family.IPV4, Backend.NFT, bad)]), [])
    assert await channel.read_back() == second.documents


async def test_a_read_only_lock_file_is_reported(node: LabNode) -> None:
    guest = prepared(node.guest("sb"), LEGACY)
    guest.run_options = "ro"
    channel = await attached(node, guest, "sb")
    with pytest.raises(Unreachable, match="Read-only file system"):
        await channel.apply(ruleset(LEGACY, 1, 1), [])
    assert (await channel.state()).digest == ""
