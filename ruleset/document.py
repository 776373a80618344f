# SPDX-License-Identifier: Apache-2.0
"""Rulesets as documents: objects of a packet filter, their canonical text, and one digest.

`parse`, and `parse_delta` of `ruleset.delta`, let in only objects and lines of the closed vocabulary
of their language (`ruleset.syntax.iptables`, `ruleset.syntax.nft`): whoever reads one that comes
from elsewhere and applies it as root knows that it touches nothing but our chains and our table.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ruleset.model import Family
from ruleset.names import Backend
from ruleset.syntax import iptables as iptables
from ruleset.syntax import nft as nft
from ruleset.syntax.lines import BadDocument

__all__ = ["BadDocument", "Document", "Ruleset", "check_objects", "make_ruleset", "parse"]


@dataclass(frozen=True, slots=True)
class Document:
    """The rules of one family in one packet filter's language.

    iptables: `objects` has "nat/VCN-SERVICES" -> its rules without "-A CHAIN "; a hook is an object
    of a built-in chain ("nat/OUTPUT" -> ("-j VCN-SERVICES",)) and is appended, never prepended.
    nft: "chain nat-output", "map service-ips" or "set service-cidrs" -> the lines inside, the
    elements of maps and sets last, one a line.
    """

    family: Family
    backend: Backend
    objects: Mapping[str, tuple[str, ...]]

    def text(self) -> str:
        """The canonical text: loads with `iptables-restore --noflush` or `nft -f`.

        A function of the objects alone, whatever their order. The iptables text is for a guest that
        has nothing of ours (`ruleset.restore.script` writes for the others); the nft text replaces our table.
        """
        if self.backend is Backend.IPTABLES:
            return iptables.write(self.objects)
        return nft.write(self.family, self.objects)


def parse(text: str, family: Family, backend: Backend) -> Document:
    """The inverse of `Document.text`. Raises `BadDocument` with the line that is to blame."""
    objects = iptables.read(text) if backend is Backend.IPTABLES else nft.read(text, family)
    check_objects(objects, backend)
    return Document(family, backend, objects)


def check_objects(objects: Mapping[str, tuple[str, ...]], backend: Backend) -> None:
    """Raise `BadDocument` unless names and lines are all of the backend's language."""
    check = iptables.check if backend is Backend.IPTABLES else nft.check
    for name, lines in objects.items():
        check(name, lines)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Everything one guest needs to reach its Services. Made by `make_ruleset`.

    `generation` grows with each ruleset that its author makes; `digest` is a SHA-256 in hex of the
    documents, which are sorted by family and backend and have objects, each.
    """

    generation: int
    digest: str
    documents: tuple[Document, ...]

    def document(self, family: Family, backend: Backend) -> Document:
        """Return the document of that family and backend, one without objects if there is none."""
        for document in self.documents:
            if document.family is family and document.backend is backend:
                return document
        return Document(family, backend, {})


def make_ruleset(generation: int, documents: Iterable[Document]) -> Ruleset:
    """Make the ruleset of these documents; one without objects says nothing and is left out."""
    kept = sorted((d for d in documents if d.objects), key=lambda d: (d.family.value, d.backend.value))
    digest = hashlib.sha256()
    for document in kept:
        text = document.text().encode()
        digest.update(f"{document.family.value} {document.backend.value} {len(text)}\n".encode())
        digest.update(text)
    return Ruleset(generation, digest.hexdigest(), tuple(kept))
