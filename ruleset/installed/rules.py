# SPDX-License-Identifier: Apache-2.0
"""Our rules in a packet filter.

They are read from the output of `iptables-save` (all tables, or nat and filter) or of `nft list table ip
vcnode` (`ip6`). Of foreign rules only one fact is read: whether one stands behind our hook in nat. A mesh
that comes later appends its jump there and would never see a cluster IP, so our hook must move behind it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ruleset.document import Document
from ruleset.installed import list_parser, save_parser
from ruleset.model import Family
from ruleset.names import Backend, is_marker, marker_chain
from ruleset.syntax.iptables import HOOKS, TABLES


@dataclass(frozen=True, slots=True)
class InstalledRules:
    """Our rules of one family in a packet filter.

    `objects` are our chains (iptables) or our whole table (nft), with markers, in the form of
    `Document.objects`. Their lines are those of a document: weights that the kernel rounded are exact
    again, elements are sorted, and clients in affinity's sets are left out.
    `hooks` are rules of foreign iptables chains that lead to ours, as printed, in order.
    `shadowed` are chains in which a foreign rule stands behind our hook, which must be the last.
    """

    family: Family
    backend: Backend
    objects: Mapping[str, tuple[str, ...]]
    hooks: Mapping[str, tuple[str, ...]]
    shadowed: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the packet filter has none of our rules."""
        return not self.objects and not self.hooks

    @property
    def marker(self) -> str:
        """The name of the marker chain; "" if it is missing or tables disagree."""
        if self.backend is Backend.NFT:
            return _common_marker([self._marks("chain ")])
        return _common_marker([self._marks(f"{table}/") for table in TABLES])

    def _marks(self, prefix: str) -> frozenset[str]:
        marks = (name for name in self.objects if is_marker(name) and name.startswith(prefix))
        return frozenset(name.removeprefix(prefix) for name in marks)

    def is_marked(self, digest: str) -> bool:
        """Whether the marker names the ruleset with this digest."""
        return self.marker == marker_chain(digest)

    def document(self) -> Document:
        """The installed rules as a document; without drift it equals the applied one."""
        objects = {name: lines for name, lines in self.objects.items() if not is_marker(name)}
        return Document(self.family, self.backend, {**objects, **self.hooks})

    def matches(self, document: Document) -> bool:
        """Whether these are the rules of `document`, with hooks in their places."""
        return not self.shadowed and self.document() == document


def _common_marker(markers_of_tables: Iterable[frozenset[str]]) -> str:
    """The only marker of each table; "" unless all tables have that one."""
    first, *others = markers_of_tables
    return next(iter(first)) if len(first) == 1 and all(markers == first for markers in others) else ""


def nothing_installed(family: Family, backend: Backend) -> InstalledRules:
    """A packet filter without our rules."""
    return InstalledRules(family, backend, {}, {})


def expected(document: Document, digest: str = "") -> InstalledRules:
    """The rules after `document` is applied, with the marker of `digest` unless it is ""."""
    hooks = {}
    objects = dict(document.objects)
    if document.backend is Backend.IPTABLES:
        hooks = {name: objects.pop(name) for name in document.objects if name in HOOKS}
    if digest:
        tables = ("chain ",) if document.backend is Backend.NFT else [f"{table}/" for table in TABLES]
        objects.update((f"{table}{marker_chain(digest)}", ()) for table in tables)
    return InstalledRules(document.family, document.backend, objects, hooks)


def read_installed(text: str, family: Family, backend: Backend) -> InstalledRules:
    """Read our rules from a packet filter's output."""
    if backend is Backend.NFT:
        return InstalledRules(family, backend, list_parser.read(text, family), {})
    read = save_parser.read(text)
    return InstalledRules(family, backend, read.objects, read.hooks, read.shadowed)


def state_digest(filters: Iterable[InstalledRules]) -> str:
    """A SHA-256 in hex of all our rules in these packet filters, and of the hooks' places.

    Counters, foreign rules and affinity's clients do not change it. If it differs from the digest right
    after applying, the rules have drifted.
    """
    digest = hashlib.sha256()
    for one in sorted(filters, key=lambda each: (each.family.value, each.backend.value)):
        digest.update(f"\n{one.family.value} {one.backend.value}\n".encode())
        for part in (one.objects, one.hooks):
            for name in sorted(part):
                lines = "\n".join(part[name])
                digest.update(f"{name} {len(lines)}\n{lines}\n".encode())
        digest.update(" ".join(sorted(one.shadowed)).encode())
    return digest.hexdigest()
