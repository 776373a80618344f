# SPDX-License-Identifier: Apache-2.0
"""Texts that bring a guest from its installed rules to the desired ones.

`iptables-restore --noflush` or `nft -f` runs them. Each table changes in one transaction. A text names
only our chains, our hooks and our table. A first apply, a repair and a change are the same: the text is
the difference to the installed rules, which are read or known.

With a `digest` the text also installs the marker of that ruleset (`ruleset.names.marker_chain`).
"""

from ruleset.delta import DocumentDelta, apply_document_delta
from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, expected, nothing_installed
from ruleset.names import Backend, is_marker
from ruleset.restore import iptables as iptables
from ruleset.restore import nft as nft
from ruleset.syntax.lines import Objects
from ruleset.syntax.nft import table


def full_restore(document: Document, installed: InstalledRules, digest: str = "") -> str:
    """The text that brings a guest from `installed` to `document`.

    iptables: all our chains are written again, superfluous ones are removed. nft: only differences
    change, so affinity's clients stay. With `ruleset.installed.rules.nothing_installed` the whole table is
    replaced, which also works where nft refuses the change.
    """
    desired = expected(document, digest)
    if document.backend is Backend.NFT:
        return _nft(desired, installed.objects, desired.objects)
    return iptables.change(desired, installed, frozenset((*desired.objects, *installed.objects)))


def delta_restore(delta: DocumentDelta, base: Document, installed: InstalledRules, digest: str = "") -> str:
    """The text that brings a guest from `base` to the result of `delta`.

    It has only the objects that the delta touches, the marker, and the hooks that `installed` has wrong.
    `installed` was read, or is `ruleset.installed.rules.expected(base, digest of the base)`; the caller
    makes sure that it matches `base`. Raises `ruleset.delta.BaseMismatch` if the delta does not fit.
    """
    desired = expected(apply_document_delta(base, delta), digest)
    marks = {name for name in (*desired.objects, *installed.objects) if is_marker(name)}
    touched = delta.touched() | marks
    if base.backend is Backend.NFT:
        before = {name: lines for name, lines in installed.objects.items() if name in touched}
        return _nft(desired, before, {n: lines for n, lines in desired.objects.items() if n in touched})
    return iptables.change(desired, installed, touched, base)


def removal(installed: InstalledRules) -> str:
    """The text that removes all our rules; "" if the guest has none."""
    if installed.is_empty:
        return ""
    if installed.backend is Backend.NFT:
        return f"delete table {table(installed.family)}\n"
    return iptables.change(
        nothing_installed(installed.family, installed.backend), installed, frozenset(installed.objects)
    )


def _nft(desired: InstalledRules, before: Objects, after: Objects) -> str:
    """Change `before` into `after`, both parts of the table, or replace the table by `desired`."""
    if before or not after:
        commands = nft.change(desired.family, before, after)
        if commands is not None:
            return commands
    return Document(desired.family, Backend.NFT, desired.objects).text()
