# SPDX-License-Identifier: Apache-2.0
"""The real packet filters of a namespace, each with the programs of a guest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.installed.rules import InstalledRules, read_installed
from ruleset.model import Family, GuestRules
from ruleset.names import Backend
from ruleset.render.iptables import render as render_iptables
from ruleset.render.nft import render as render_nft
from ruleset.restore.script import full_restore
from ruleset.syntax.nft import FAMILIES, table
from tests.lab.namespaces import LabNamespace

LEGACY, COMPATIBLE, NATIVE = "iptables-legacy", "iptables-nft", "nft"
KINDS = (LEGACY, COMPATIBLE, NATIVE)
ALL = [(kind, family) for kind in KINDS for family in Family]

_COUNTERS = re.compile(r" \[\d+:\d+\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LabFilter:
    """One packet filter and one family of it."""

    namespace: LabNamespace
    kind: str
    family: Family

    @property
    def backend(self) -> Backend:
        return Backend.NFT if self.kind == NATIVE else Backend.IPTABLES

    @property
    def iptables(self) -> str:
        """The family's iptables, also beside nft: a mesh uses it."""
        variant = LEGACY if self.kind == LEGACY else COMPATIBLE
        return variant if self.family is Family.IPV4 else variant.replace("ip", "ip6", 1)

    def render(self, rules: GuestRules) -> Document:
        return render_nft(rules) if self.kind == NATIVE else render_iptables(rules)

    def load(self, text: str) -> None:
        """Load one of our texts. Raises `ProgramError`."""
        if self.kind == NATIVE:
            self.namespace.run("nft", "-f", "-", stdin=text)
        else:
            self.restore(text, "--noflush")

    def restore(self, text: str, *options: str) -> None:
        """Run a text for `iptables-restore`. Raises `ProgramError`."""
        self.namespace.run(f"{self.iptables}-restore", "-w", "5", *options, stdin=text)

    def save(self) -> str:
        """The programs' whole output, without dates and counters."""
        saved = self.namespace.run(f"{self.iptables}-save")
        lines = (line for line in saved.splitlines() if not line.startswith("#"))
        text = _COUNTERS.sub("", "".join(f"{line}\n" for line in lines))
        return text + self.listed() if self.kind == NATIVE else text

    def listed(self) -> str:
        """Our nft table; "" without one."""
        tables = self.namespace.run("nft", "list", "tables", FAMILIES[self.family])
        if f"table {table(self.family)}\n" not in tables:
            return ""
        return self.namespace.run("nft", "list", "table", *table(self.family).split())

    def installed(self) -> InstalledRules:
        text = self.listed() if self.kind == NATIVE else self.namespace.run(f"{self.iptables}-save")
        return read_installed(text, self.family, self.backend)

    def apply(self, rules: GuestRules) -> Ruleset:
        """Render, and change the guest's installed rules to that."""
        made = make_ruleset(1, [self.render(rules)])
        self.load(full_restore(made.documents[0], self.installed(), made.digest))
        return made
