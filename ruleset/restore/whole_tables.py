# SPDX-License-Identifier: Apache-2.0
"""Texts for a stock Kata guest, whose agent runs `iptables-restore` without `--noflush`.

It replaces every table that the text names and leaves the others alone (kata-nri-cri.md 1.3). So
nat and filter are sent whole: what others have there as it was read, every line in its place, and
ours put among it. Between the reading and the writing the guest may change what gets lost then:
the channel has no better, and only what stays in the guest can see.
"""

from dataclasses import dataclass, field

from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, expected, nothing_installed
from ruleset.installed.save_parser import jumps_to_us, parts
from ruleset.model import Family
from ruleset.names import Backend, is_our_chain
from ruleset.syntax.iptables import TABLES

MAX_TEXT_BYTES = 3584 * 1024
"""ttrpc ends at 4 MiB a message, and the shim's request is wrapped in another."""


class RulesetTooLarge(Exception):  # noqa: N818 - a finding about a guest, not a fault
    """More rules than a stock Kata guest can be sent."""


@dataclass(slots=True)
class _Foreign:
    """What of a table belongs to others, as printed."""

    declared: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    had_ours: bool = False


def whole_tables(save_text: str, document: Document, digest: str = "") -> str:
    """The whole tables of a guest that printed `save_text`, with `document` in the place of ours.

    With a `digest` the marker chain of that ruleset is among it. An empty `save_text` is a fresh
    guest (or one whose save fails, which the stock agent does not tell): there is nothing to merge.
    Raises `TooLarge`.
    """
    wanted = expected(document, digest)
    foreign = _foreign(save_text)
    text = "".join(_table(table, foreign.get(table, _Foreign()), wanted) for table in TABLES)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise RulesetTooLarge(
            f"{size} bytes of rules, {len(document.text())} of them ours: a stock Kata guest takes "
            f"{MAX_TEXT_BYTES}, one with vcnode's agent more"
        )
    return text


def without_ours(save_text: str) -> str:
    """The whole tables of a guest that printed `save_text`, without anything of ours.

    Names only the tables that have something of ours; "" if none has.
    """
    none = nothing_installed(
        Family.IPV4, Backend.IPTABLES
    )  # a text without rules is the same for both families
    foreign = _foreign(save_text)
    ours = (table for table in TABLES if table in foreign and foreign[table].had_ours)
    return "".join(_table(table, foreign[table], none) for table in ours)


def _table(table: str, foreign: _Foreign, wanted: InstalledRules) -> str:
    chains = sorted(name for name in wanted.objects if name.startswith(f"{table}/"))
    short = {name: name.partition("/")[2] for name in (*chains, *wanted.hooks)}
    lines = [f"*{table}", *foreign.declared]
    lines += (f":{short[name]} - [0:0]" for name in chains)
    lines += foreign.rules
    hooks = (name for name in sorted(wanted.hooks) if name.startswith(f"{table}/"))
    lines += (f"-A {short[name]} {rule}" for name in hooks for rule in wanted.hooks[name])
    lines += (f"-A {short[name]} {rule}" for name in chains for rule in wanted.objects[name])
    lines.append("COMMIT")
    return "".join(f"{line}\n" for line in lines)


def _foreign(save_text: str) -> dict[str, _Foreign]:
    """What belongs to others, by table. Comments and whatever is not of a save are left out."""
    tables: dict[str, _Foreign] = {}
    current = _Foreign()
    for line in save_text.split("\n"):
        if line.startswith("*"):
            current = tables.setdefault(line[1:].strip(), _Foreign())
        elif line.startswith(":"):
            if is_our_chain(line[1:].partition(" ")[0]):
                current.had_ours = True
            else:
                current.declared.append(line)
        elif found := parts(line):
            if is_our_chain(found[0]) or jumps_to_us(found[1]):
                current.had_ours = True
            else:
                current.rules.append(line)
    return tables
