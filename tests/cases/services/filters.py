# SPDX-License-Identifier: Apache-2.0
"""The packet filters that load rules in a guest's namespace."""

import shutil
from dataclasses import dataclass

from ruleset.document import Document, parse
from ruleset.installed.rules import InstalledRules, read_installed
from ruleset.model import Family
from ruleset.names import NFT_TABLE, Backend
from ruleset.restore.script import full_restore
from tests.cases.services.namespace import ThreadedNamespace

_NFT_FAMILY = {Family.IPV4: "ip", Family.IPV6: "ip6"}


@dataclass(frozen=True, slots=True)
class KernelFilter:
    """One packet filter program. `variant` is empty for nft."""

    name: str
    backend: Backend
    variant: str = ""

    @property
    def programs(self) -> tuple[str, ...]:
        if self.backend is Backend.NFT:
            return ("nft",)
        families = ("iptables", "ip6tables")
        return tuple(f"{ip}-{self.variant}-{what}" for ip in families for what in ("restore", "save"))

    @property
    def missing(self) -> str:
        """The first program that this machine lacks; "" if it has all."""
        return next((program for program in self.programs if shutil.which(program) is None), "")

    def restore_program(self, family: Family) -> str:
        if self.backend is Backend.NFT:
            return "nft"
        return f"{'iptables' if family is Family.IPV4 else 'ip6tables'}-{self.variant}-restore"

    def load(self, guest: ThreadedNamespace, family: Family, text: str) -> None:
        """Apply a text; foreign rules stay. Raises NamespaceError."""
        if self.backend is Backend.NFT:
            guest.run("nft", "-f", "-", text=text)
        else:
            guest.run(self.restore_program(family), "--noflush", "-w", "5", text=text)

    def change(self, guest: ThreadedNamespace, family: Family, text: str) -> None:
        """Change the installed rules to `text` as the guest agent does: in one transaction per table."""
        expected: Document = parse(text, family, self.backend)
        self.load(guest, family, full_restore(expected, self.installed(guest, family)))

    def clear(self, guest: ThreadedNamespace, family: Family) -> None:
        """Remove all rules, and all remembered clients."""
        if self.backend is Backend.NFT:
            guest.run("nft", "flush", "ruleset")
        else:
            guest.run(self.restore_program(family), "-w", "5", text="*filter\nCOMMIT\n*nat\nCOMMIT\n")

    def save(self, guest: ThreadedNamespace, family: Family) -> str:
        """All rules of a family, as the program saves them."""
        if self.backend is Backend.NFT:
            return guest.run("nft", "-s", "list", "ruleset", _NFT_FAMILY[family])
        return guest.run(self.restore_program(family).replace("restore", "save"))

    def installed(self, guest: ThreadedNamespace, family: Family) -> InstalledRules:
        """Our installed rules."""
        if self.backend is Backend.NFT:
            listing = guest.tries("nft", "-s", "list", "table", _NFT_FAMILY[family], NFT_TABLE)
            return read_installed(listing.stdout, family, self.backend)
        return read_installed(self.save(guest, family), family, self.backend)


FILTERS = (
    KernelFilter("iptables-legacy", Backend.IPTABLES, "legacy"),
    KernelFilter("iptables-nft", Backend.IPTABLES, "nft"),
    KernelFilter("nft", Backend.NFT),
)
