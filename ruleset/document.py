# SPDX-License-Identifier: Apache-2.0
"""Rulesets as documents: objects of a packet filter, their canonical text, and a digest.

`parse`, and `parse_delta` of `ruleset.delta`, accept only the closed vocabulary of `ruleset.syntax`.
A document from elsewhere that they accept touches only our chains and our table when root applies it.
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
    """The rules of one family for one packet filter, as a mapping from object names to lines.

    iptables: "nat/VCN-SERVICES" -> rules without "-A CHAIN ". A hook is an object of a built-in chain
    ("nat/OUTPUT" -> ("-j VCN-SERVICES",)); it is appended.
    nft: "chain nat-output", "map services" or "set service-cidrs" -> the lines inside. Elements of maps
    and sets come last, one a line.
    """

    family: Family
    backend: Backend
    objects: Mapping[str, tuple[str, ...]]

    def text(self) -> str:
        """The canonical text for `iptables-restore --noflush` or `nft -f`; independent of the objects' order.

        The iptables text is for a guest without our rules (`ruleset.restore.script` is for others); the nft
        text replaces our table.
        """
        if self.backend is Backend.IPTABLES:
            return iptables.write(self.objects)
        return nft.write(self.family, self.objects)


def parse(text: str, family: Family, backend: Backend) -> Document:
    """The inverse of `Document.text`. Raises `BadDocument` with the bad line."""
    objects = iptables.read(text) if backend is Backend.IPTABLES else nft.read(text, family)
    check_objects(objects, backend)
    return Document(family, backend, objects)


def check_objects(objects: Mapping[str, tuple[str, ...]], backend: Backend) -> None:
    """Raise `BadDocument` unless all names and lines are in the backend's vocabulary."""
    check = iptables.check if backend is Backend.IPTABLES else nft.check
    for name, lines in objects.items():
        check(name, lines)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Everything that one guest needs to reach its Services. Made by `make_ruleset`.

    `generation` grows with each ruleset of its author. `digest` is a SHA-256 in hex of the documents,
    which are sorted by family and backend; none is empty.
    """

    generation: int
    digest: str
    documents: tuple[Document, ...]

    def document(self, family: Family, backend: Backend) -> Document:
        """Return the document of that family and backend; an empty one if it is missing."""
        for document in self.documents:
            if document.family is family and document.backend is backend:
                return document
        return Document(family, backend, {})


def make_ruleset(generation: int, documents: Iterable[Document]) -> Ruleset:
    """Make the ruleset of these documents; empty ones are left out."""
    kept = sorted((d for d in documents if d.objects), key=lambda d: (d.family.value, d.backend.value))
    digest = hashlib.sha256()
    for document in kept:
        text = document.text().encode()
        digest.update(f"{document.family.value} {document.backend.value} {len(text)}\n".encode())
        digest.update(text)
    return Ruleset(generation, digest.hexdigest(), tuple(kept))
