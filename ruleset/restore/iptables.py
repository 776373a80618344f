# SPDX-License-Identifier: Apache-2.0
"""Writes the text for `iptables-restore --noflush` that changes a guest.

Tables are committed one by one, in their order in the text. nat and filter must not both be
without a captured address for a moment: a packet that is neither translated nor refused leaves
the guest, and the connection that it began stays stuck until it times out, since conntrack
remembers it as untranslated. So refusals come before what they take over from nat, and go after
what nat takes over from them.
"""

from collections.abc import Iterable, Iterator

from ruleset.document import Document
from ruleset.installed.rules import InstalledRules
from ruleset.names import SERVICES
from ruleset.syntax.iptables import HOOKS, TABLES

_REFUSALS = f"filter/{SERVICES}"


def change(
    wanted: InstalledRules, held: InstalledRules, touched: frozenset[str], base: Document | None = None
) -> str:
    """The text that writes the chains of `touched` as `wanted` has them, or takes them away.

    Hooks are put right wherever `held` has them wrong. `base` is what the guest has, if known: it
    decides the order of tables.
    """
    sections = {table: tuple(_section(table, wanted, held, touched)) for table in TABLES}
    texts = {table: _transaction(table, lines) for table, lines in sections.items() if lines}
    before = base.objects.get(_REFUSALS, ()) if base is not None else ()
    after = wanted.objects.get(_REFUSALS, ())
    kept = frozenset(after)
    gone = tuple(rule for rule in before if rule not in kept)
    if not gone or len(texts) < len(TABLES):
        return "".join(texts.values())
    if frozenset(before).issuperset(after):
        return texts["nat"] + texts["filter"]
    # Some refusals come and some go: filter has both while nat changes. What goes stands behind the
    # first rule, which lets pass what was translated.
    both = (f"-A {SERVICES} {rule}" for rule in (*after[:1], *gone, *after[1:]))
    return _transaction("filter", (f":{SERVICES} - [0:0]", *both)) + texts["nat"] + texts["filter"]


def _transaction(table: str, lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in (f"*{table}", *lines, "COMMIT"))


def _section(
    table: str, wanted: InstalledRules, held: InstalledRules, touched: frozenset[str]
) -> Iterator[str]:
    """The lines of one table. Naming a chain makes it, or empties it if it is there."""
    names = sorted(name for name in touched if name.startswith(f"{table}/") and name not in HOOKS)
    chains = {name: name.partition("/")[2] for name in names}
    yield from (f":{chain} - [0:0]" for chain in chains.values())
    # Hooks that are wrong go one by one and as printed: two equal ones need two deletions.
    hooks = sorted({*held.hooks, *wanted.hooks})
    wrong = [name for name in hooks if name.startswith(f"{table}/") and not _is_right(name, wanted, held)]
    for name in wrong:
        yield from (f"-D {name.partition('/')[2]} {rule}" for rule in held.hooks.get(name, ()))
    for name, chain in chains.items():
        yield from (f"-A {chain} {rule}" for rule in wanted.objects.get(name, ()))
    for name in wrong:
        yield from (f"-A {name.partition('/')[2]} {rule}" for rule in wanted.hooks.get(name, ()))
    # A chain goes only when nothing leads to it any more: what led to it was emptied above.
    yield from (f"-X {chain}" for name, chain in chains.items() if name not in wanted.objects)


def _is_right(name: str, wanted: InstalledRules, held: InstalledRules) -> bool:
    return held.hooks.get(name) == wanted.hooks.get(name) and name not in held.shadowed
