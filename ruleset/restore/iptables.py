# SPDX-License-Identifier: Apache-2.0
"""Writes the text for `iptables-restore --noflush` that changes a guest.

iptables commits table by table, in their order in the text. At each moment nat or filter must have each
frontend. Otherwise a packet leaves the guest untranslated, and its connection hangs until it times out,
because conntrack has it as untranslated. So filter rejects a frontend before nat drops it, and nat
translates one before filter stops rejecting it.
"""

from collections.abc import Iterable, Iterator

from ruleset.document import Document
from ruleset.installed.rules import InstalledRules
from ruleset.names import SERVICES
from ruleset.syntax.iptables import HOOKS, TABLES

_REFUSALS = f"filter/{SERVICES}"


def change(
    desired: InstalledRules, installed: InstalledRules, touched: frozenset[str], base: Document | None = None
) -> str:
    """The text that writes the chains of `touched` as in `desired`, or removes them.

    It also repairs the hooks that `installed` has wrong. `base` has the guest's rules, if they are known:
    they decide the order of tables.
    """
    sections = {table: tuple(_section(table, desired, installed, touched)) for table in TABLES}
    texts = {table: _transaction(table, lines) for table, lines in sections.items() if lines}
    before = base.objects.get(_REFUSALS, ()) if base is not None else ()
    after = desired.objects.get(_REFUSALS, ())
    kept = frozenset(after)
    gone = tuple(rule for rule in before if rule not in kept)
    if not gone or len(texts) < len(TABLES):
        return "".join(texts.values())
    if frozenset(before).issuperset(after):
        return texts["nat"] + texts["filter"]
    # Some rejecting rules come and some go: filter has both while nat changes. Those that go stand
    # behind the first rule, which returns translated packets.
    both = (f"-A {SERVICES} {rule}" for rule in (*after[:1], *gone, *after[1:]))
    return _transaction("filter", (f":{SERVICES} - [0:0]", *both)) + texts["nat"] + texts["filter"]


def _transaction(table: str, lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in (f"*{table}", *lines, "COMMIT"))


def _section(
    table: str, desired: InstalledRules, installed: InstalledRules, touched: frozenset[str]
) -> Iterator[str]:
    """The lines of one table. Declaring a chain creates it, or empties an existing one."""
    names = sorted(name for name in touched if name.startswith(f"{table}/") and name not in HOOKS)
    chains = {name: name.partition("/")[2] for name in names}
    yield from (f":{chain} - [0:0]" for chain in chains.values())
    # Wrong hooks are deleted as printed, one by one: two equal ones need two deletions.
    hooks = sorted({*installed.hooks, *desired.hooks})
    wrong = [
        name for name in hooks if name.startswith(f"{table}/") and not _is_desired(name, desired, installed)
    ]
    for name in wrong:
        yield from (f"-D {name.partition('/')[2]} {rule}" for rule in installed.hooks.get(name, ()))
    for name, chain in chains.items():
        yield from (f"-A {chain} {rule}" for rule in desired.objects.get(name, ()))
    for name in wrong:
        yield from (f"-A {name.partition('/')[2]} {rule}" for rule in desired.hooks.get(name, ()))
    # A chain can be removed only without jumps to it; the chains that had them were emptied above.
    yield from (f"-X {chain}" for name, chain in chains.items() if name not in desired.objects)


def _is_desired(name: str, desired: InstalledRules, installed: InstalledRules) -> bool:
    return installed.hooks.get(name) == desired.hooks.get(name) and name not in installed.shadowed
