# SPDX-License-Identifier: Apache-2.0
"""Texts for a stock Kata guest, whose agent runs `iptables-restore` without `--noflush`.

That replaces each table of the text and leaves the others (docs/spec/kata.md#agent). So nat and filter
are sent whole: foreign lines as they were read, in their places, with our rules among them. A foreign
change between reading and writing is lost; this channel cannot detect it.
"""

from dataclasses import dataclass, field

from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, expected
from ruleset.installed.save_parser import jumps_to_us, parts
from ruleset.names import is_our_chain
from ruleset.syntax.iptables import TABLES

MAX_TEXT_BYTES = 3584 * 1024
"""ttrpc has 4 MiB a message, and the shim's request is wrapped in another."""


class RulesetTooLarge(Exception):  # noqa: N818 - a finding about a guest, not a fault
    """A text exceeds what a stock Kata guest takes in one message."""


@dataclass(slots=True)
class _Foreign:
    """The foreign lines of a table, as printed."""

    declared: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)


def whole_tables(save_text: str, document: Document, digest: str = "") -> str:
    """The whole tables of a guest that printed `save_text`, with our rules replaced by `document`.

    With a `digest` the text also has the marker of that ruleset. An empty `save_text` is of a fresh guest,
    or of one whose save fails, which the stock agent does not report. Raises `RulesetTooLarge`.
    """
    desired = expected(document, digest)
    foreign = _foreign(save_text)
    text = "".join(_table(table, foreign.get(table, _Foreign()), desired) for table in TABLES)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise RulesetTooLarge(
            f"{size} bytes of rules, {len(document.text())} of them ours: a stock Kata guest takes "
            f"{MAX_TEXT_BYTES}, one with vcnode's agent more"
        )
    return text


def _table(table: str, foreign: _Foreign, desired: InstalledRules) -> str:
    chains = sorted(name for name in desired.objects if name.startswith(f"{table}/"))
    short = {name: name.partition("/")[2] for name in (*chains, *desired.hooks)}
    lines = [f"*{table}", *foreign.declared]
    lines += (f":{short[name]} - [0:0]" for name in chains)
    lines += foreign.rules
    hooks = (name for name in sorted(desired.hooks) if name.startswith(f"{table}/"))
    lines += (f"-A {short[name]} {rule}" for name in hooks for rule in desired.hooks[name])
    lines += (f"-A {short[name]} {rule}" for name in chains for rule in desired.objects[name])
    lines.append("COMMIT")
    return "".join(f"{line}\n" for line in lines)


def _foreign(save_text: str) -> dict[str, _Foreign]:
    """The foreign lines by table. Comments and lines that are not of a save are left out."""
    tables: dict[str, _Foreign] = {}
    current = _Foreign()
    for line in save_text.split("\n"):
        if line.startswith("*"):
            current = tables.setdefault(line[1:].strip(), _Foreign())
        elif line.startswith(":"):
            if not is_our_chain(line[1:].partition(" ")[0]):
                current.declared.append(line)
        elif (found := parts(line)) and not (is_our_chain(found[0]) or jumps_to_us(found[1])):
            current.rules.append(line)
    return tables
