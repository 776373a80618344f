# SPDX-License-Identifier: Apache-2.0
"""What a packet filter says it holds of ours.

Read from the output of `iptables-save` (all tables, or nat and filter one after the other) or of
`nft list table ip vcnode` (`ip6`). What belongs to others is not read, but for one thing: whether
their rules stand behind our hook in nat. A mesh that is set up after us appends its jump behind
ours, and would never see a cluster IP: a hook that is not the last has to be moved.
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
    """Our part of a packet filter, of one family.

    `objects` are our chains (iptables) or all of our table (nft), markers included, in the manner of
    `Document.objects` and with the lines as a document has them: a kernel's rounded weights are
    unrounded, elements sorted, and what traffic leaves in affinity's sets is left out.
    `hooks` are the rules of iptables chains that are not ours and lead to ours, as printed, in order.
    `overtaken` are the chains among them where another's rule stands behind ours and must not.
    """

    family: Family
    backend: Backend
    objects: Mapping[str, tuple[str, ...]]
    hooks: Mapping[str, tuple[str, ...]]
    shadowed: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of ours is there."""
        return not self.objects and not self.hooks

    @property
    def marker(self) -> str:
        """The name of the marker chain, "" if there is none or tables disagree."""
        if self.backend is Backend.NFT:
            return _common_marker([self._marks("chain ")])
        return _common_marker([self._marks(f"{table}/") for table in TABLES])

    def _marks(self, prefix: str) -> frozenset[str]:
        marks = (name for name in self.objects if is_marker(name) and name.startswith(prefix))
        return frozenset(name.removeprefix(prefix) for name in marks)

    def is_marked(self, digest: str) -> bool:
        """Whether the marker is that of the ruleset with this digest."""
        return self.marker == marker_chain(digest)

    def document(self) -> Document:
        """What is held, as a document: equal to the one that was applied, if nothing drifted."""
        objects = {name: lines for name, lines in self.objects.items() if not is_marker(name)}
        return Document(self.family, self.backend, {**objects, **self.hooks})

    def matches(self, document: Document) -> bool:
        """Whether this is what `document` says, hooks in their places."""
        return not self.shadowed and self.document() == document


def _common_marker(markers_of_tables: Iterable[frozenset[str]]) -> str:
    """The only marker of each table; "" unless all tables have that one."""
    first, *others = markers_of_tables
    return next(iter(first)) if len(first) == 1 and all(markers == first for markers in others) else ""


def nothing_installed(family: Family, backend: Backend) -> InstalledRules:
    """A packet filter that has nothing of ours."""
    return InstalledRules(family, backend, {}, {})


def expected(document: Document, digest: str = "") -> InstalledRules:
    """What a packet filter holds once `document` is applied, marked with `digest` unless it is ""."""
    hooks = {}
    objects = dict(document.objects)
    if document.backend is Backend.IPTABLES:
        hooks = {name: objects.pop(name) for name in document.objects if name in HOOKS}
    if digest:
        tables = ("chain ",) if document.backend is Backend.NFT else [f"{table}/" for table in TABLES]
        objects.update((f"{table}{marker_chain(digest)}", ()) for table in tables)
    return InstalledRules(document.family, document.backend, objects, hooks)


def read_installed(text: str, family: Family, backend: Backend) -> InstalledRules:
    """Read what is ours out of a packet filter's own text; an empty text holds nothing."""
    if backend is Backend.NFT:
        return InstalledRules(family, backend, list_parser.read(text, family), {})
    read = save_parser.read(text)
    return InstalledRules(family, backend, read.objects, read.hooks, read.shadowed)


def state_digest(held: Iterable[InstalledRules]) -> str:
    """A SHA-256 in hex of everything of ours in these packet filters, and of the hooks' places.

    Counters, other programs' rules and affinity's memory do not change it. Compare with one taken
    right after applying: what differs has drifted.
    """
    digest = hashlib.sha256()
    for one in sorted(held, key=lambda h: (h.family.value, h.backend.value)):
        digest.update(f"\n{one.family.value} {one.backend.value}\n".encode())
        for part in (one.objects, one.hooks):
            for name in sorted(part):
                lines = "\n".join(part[name])
                digest.update(f"{name} {len(lines)}\n{lines}\n".encode())
        digest.update(" ".join(sorted(one.shadowed)).encode())
    return digest.hexdigest()
