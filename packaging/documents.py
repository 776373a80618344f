# SPDX-License-Identifier: Apache-2.0
"""Writes the man pages and shell completions of all programs: `python packaging/documents.py DIRECTORY`.

They are made from the parsers that the programs use, and stand below DIRECTORY at their places in the root of
a node. The exit codes are those of docs/reference/commands.md. SOURCE_DATE_EPOCH is the date of the pages
(else it is the current day), so that one commit makes the same bytes:
https://reproducible-builds.org/specs/source-date-epoch/
"""

import argparse
import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shtab
from argparse_manpage.manpage import Manpage  # type: ignore[import-untyped] # it has no types

from daemonkit.run.command_parser import command_parser
from daemonkit.version import VERSION
from guest_agent import arguments as guest_agent
from kubectl_vc.arguments import parser as plugin
from kubeproxy_ext import render
from vc_signer import arguments as signer
from vcnode.__main__ import EXPLAINERS, VERBS
from vcnode.__main__ import parser as operators_tool
from vcnode.demo import VERB as DEMO
from vcnode.verbs import load

SOURCE = Path(__file__).resolve().parents[1]
MAN = "usr/share/man/man8"
# Where each shell looks for what packages bring; zsh's is Debian's place.
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/{}",
    "zsh": "usr/share/zsh/vendor-completions/_{}",
    "fish": "usr/share/fish/vendor_completions.d/{}.fish",
}
DAEMONS = {
    "vn-agent": "tenants' kubelet API on a shared Kubernetes node",
    "kata-bridge": "writes Services and resolvers into Kata guests, and holds containers until then",
    "kubeproxy-ext": "computes the rules of each Kata guest's Services",
    "dnsconfig": "computes the resolver of each pod's network",
    "vc-syncer": "copies tenants' objects into the super cluster, and statuses back",
    "vc-operator": "makes and keeps the control planes of tenants",
    "dnsconfig-webhook": "writes the resolver of each pod's network into the pod when it is admitted",
}
GUEST_AGENT, SIGNER, TOOL = "vcnode-guest-agent", "vc-signer", "vcnode"
PLUGIN = "kubectl-vc"
# kubectl starts it for completion of the plugin; its page is the plugin's.
COMPLETION = "kubectl_complete-vc"
_SUMMARIES = {
    **DAEMONS,
    GUEST_AGENT: "installs Service rules in a Kata guest",
    SIGNER: "signs service account tokens of a tenant's API server",
    TOOL: "operator's tool of the vcnode node data plane",
    PLUGIN: "tenants' control planes, from the super cluster's side",
}
# How the table of exit codes names a program, beside its own name.
_ANY_DAEMON = "a daemon"


def main(argv: list[str]) -> int:
    """Write all below the directory. Returns the exit code."""
    (target,) = argv
    # argparse asks the environment how wide a line is; man fills lines itself.
    os.environ["COLUMNS"] = "2000"  # noqa: TID251 - as above
    for program in (*DAEMONS, TOOL, GUEST_AGENT, SIGNER, PLUGIN):
        page = man_page(program, page_parser(program))
        # As `gzip -n -9`: neither a name nor a time.
        _write(Path(target, MAN, f"{program}.8.gz"), gzip.compress(page.encode(), 9, mtime=0))
    link = f".so man8/{PLUGIN}.8\n"
    _write(Path(target, MAN, f"{COMPLETION}.8.gz"), gzip.compress(link.encode(), 9, mtime=0))
    for program in (*DAEMONS, TOOL):
        for shell, place in COMPLETIONS.items():
            text = shtab.complete(completion_parser(program), shell=shell)
            _write(Path(target, place.format(program)), text.rstrip("\n").encode() + b"\n")
    return 0


def page_parser(program: str) -> argparse.ArgumentParser:
    """All options and verbs of a program. A verb of two words is one verb here: a page lists them all."""
    if program == GUEST_AGENT:
        return guest_agent.command_parser()
    if program == SIGNER:
        return signer.command_parser()
    if program == PLUGIN:
        made = plugin()
        made.prog = PLUGIN
        return made
    if program == TOOL:
        top = operators_tool(_installed_verbs())
        for word, module in EXPLAINERS.items():
            load(module).add_to(_Renamed(_verbs_of(top), f"explain {word}"))
        return top
    return _daemon_parser(program)


def completion_parser(program: str) -> argparse.ArgumentParser:
    """All options and verbs of a program, those of two words below their first one."""
    parser = page_parser(program) if program != TOOL else operators_tool(_installed_verbs())
    if program == TOOL:
        explain = _verbs_of(parser).choices["explain"]
        # A shell cannot complete them: they are pods and addresses.
        positionals = [each for each in explain._actions if not each.option_strings]  # noqa: SLF001 - no other way
        for action in positionals:
            explain._remove_action(action)  # noqa: SLF001 - as above
        second = explain.add_subparsers(metavar="WHAT")
        for module in EXPLAINERS.values():
            load(module).add_to(second)
    for each in parsers(parser):
        for action in each._actions:  # noqa: SLF001 - as above
            if action.nargs != argparse.PARSER and isinstance(action.choices, dict):
                # shtab takes any other dict for verbs too.
                action.choices = tuple(action.choices)
            if action.type is Path:
                # shtab reads this attribute of an action.
                is_directory = action.metavar == "DIRECTORY"
                completer = shtab.DIRECTORY if is_directory else shtab.FILE
                action.complete = completer  # type: ignore[attr-defined] # argparse does not know it
    return parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of all its verbs."""
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse shows its verbs in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for verb in action.choices.values():
                yield from parsers(verb)


def man_page(program: str, parser: argparse.ArgumentParser) -> str:
    """The page of section 8, as roff."""
    about = {
        "project_name": "vcnode",
        "version": VERSION,
        "description": _SUMMARIES[program],
        "manual_section": 8,
        "manual_title": "System Administration",
    }
    for group in parser._action_groups:  # noqa: SLF001 - argparse tells in no other way
        if any(isinstance(each, argparse._SubParsersAction) for each in group._group_actions):  # noqa: SLF001
            group.title = "commands"
    page = Manpage(parser, about, format="single-commands-section")
    reference = (SOURCE / "docs/reference/commands.md").read_text()
    page.add_section("exit status", ">", _terms(list(exit_codes(program, reference))))
    if program in DAEMONS:
        page.add_section("files", ">", _terms(list(_files(program))))
    others = sorted({*_SUMMARIES} - {program})
    page.add_section("see also", ">", ",\n".join(rf".BR {_escaped(each)} (8)" for each in others))
    # .BR takes the comma as a part of its last word.
    return str(page).replace("(8),\n.BR", "(8),\n.BR")


def exit_codes(program: str, reference: str) -> Iterator[tuple[str, str]]:
    """Code and meaning of each of a program's rows in docs/reference/commands.md."""
    for line in reference.splitlines():
        cells = [each.strip() for each in line.strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) != 3 or not cells[1].isdigit():
            continue
        names, code, meaning = cells
        meaning = meaning.replace("`", "")
        own = {program, _ANY_DAEMON} if program in DAEMONS else {program}
        if names in own:
            yield code, meaning
        elif names.startswith(f"{program} ") and names != f"{TOOL} {DEMO}":
            yield code, f"{names}: {meaning}"


def _files(daemon: str) -> Iterator[tuple[str, str]]:
    yield f"/etc/vcnode/{daemon}.yaml", "the configuration; vcnode init writes it"
    yield f"/usr/share/vcnode/examples/{daemon}.yaml", "an example with all keys"
    yield f"/usr/lib/systemd/system/{daemon}.service", "the unit"


def _terms(pairs: list[tuple[str, str]]) -> str:
    return "\n".join(f".TP\n.B {_escaped(term)}\n{_escaped(text)}" for term, text in pairs)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def _daemon_parser(program: str) -> argparse.ArgumentParser:
    parser = command_parser(program)
    if program == "kubeproxy-ext":
        # Its __main__ tells the verb by the first word, before argparse is loaded.
        own = render.command_parser()
        verbs = parser.add_subparsers(metavar="[render]")
        verbs.add_parser(
            "render",
            help=own.description,
            description=own.description,
            parents=[own],
            add_help=False,
            allow_abbrev=False,
        )
    return parser


def _installed_verbs() -> list[str]:
    # The demo runs from a clone only.
    return [each for each in VERBS if each != DEMO]


class _Renamed:
    """The verbs of a parser; a verb that is added gets another name."""

    def __init__(self, verbs: Any, name: str) -> None:
        self._verbs = verbs
        self._name = name

    def add_parser(self, _: str, **settings: Any) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = self._verbs.add_parser(self._name, **settings)
        return added


def _verbs_of(parser: argparse.ArgumentParser) -> Any:
    actions = parser._actions  # noqa: SLF001 - argparse shows its verbs in no other way
    return next(each for each in actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
