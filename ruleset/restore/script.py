# SPDX-License-Identifier: Apache-2.0
"""Texts that bring a guest from what it holds to what it should hold.

`iptables-restore --noflush` or `nft -f` runs them. Each table changes in one transaction, and
nothing but our chains, our hooks and our table is named. A first apply, a repair after somebody
flushed a table or a chain or took a hook away, and a change of everything are the same: what is
held is read, or known, and the text is what is missing.

With a `digest` the text also leaves the marker chain of that ruleset (`ruleset.names.marker_chain`).
"""

from ruleset.delta import DocumentDelta, apply_document_delta
from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, expected, nothing_installed
from ruleset.names import Backend, is_marker
from ruleset.restore import iptables as iptables
from ruleset.restore import nft as nft
from ruleset.syntax.lines import Objects
from ruleset.syntax.nft import table


def full_restore(document: Document, held: InstalledRules, digest: str = "") -> str:
    """The text after which a guest that holds `held` holds `document`, whatever it was.

    iptables: all our chains are written anew, those that are not wanted go. nft: what differs is
    changed, so that affinity's memory stays; with `ruleset.installed.rules.nothing` as `held` the whole table
    is replaced, which also helps where nft does not like the change.
    """
    wanted = expected(document, digest)
    if document.backend is Backend.NFT:
        return _nft(wanted, held.objects, wanted.objects)
    return iptables.change(wanted, held, frozenset((*wanted.objects, *held.objects)))


def delta_restore(delta: DocumentDelta, base: Document, held: InstalledRules, digest: str = "") -> str:
    """The text after which a guest that holds `base` holds what `delta` makes of it.

    Only what the delta touches is written, the marker, and the hooks where `held` has them wrong.
    `held` is what was read, or `ruleset.installed.rules.expected(base, digest of the base)`; that it holds
    `base` is the caller's to know. Raises `ruleset.delta.BaseMismatch` if the delta does not fit.
    """
    wanted = expected(apply_document_delta(base, delta), digest)
    marks = {name for name in (*wanted.objects, *held.objects) if is_marker(name)}
    touched = delta.touched() | marks
    if base.backend is Backend.NFT:
        before = {name: lines for name, lines in held.objects.items() if name in touched}
        return _nft(wanted, before, {n: lines for n, lines in wanted.objects.items() if n in touched})
    return iptables.change(wanted, held, touched, base)


def removal(held: InstalledRules) -> str:
    """The text after which nothing of ours is left; "" if nothing is there."""
    if held.is_empty:
        return ""
    if held.backend is Backend.NFT:
        return f"delete table {table(held.family)}\n"
    return iptables.change(nothing_installed(held.family, held.backend), held, frozenset(held.objects))


def _nft(wanted: InstalledRules, before: Objects, after: Objects) -> str:
    """Change `before` into `after`, parts of what is there, or replace all by `wanted`."""
    if before or not after:
        commands = nft.change(wanted.family, before, after)
        if commands is not None:
            return commands
    return Document(wanted.family, Backend.NFT, wanted.objects).text()
