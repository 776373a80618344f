# SPDX-License-Identifier: Apache-2.0
"""The files of docs/reference, whole."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.packages import ROOT
from tests.reference import (
    commands,
    configuration,
    definitions,
    events,
    metrics,
    screenshots,
    sync_policy,
    terminals,
)
from tests.reference.kinds import KINDS

DIRECTORY = ROOT / "docs" / "reference"

_MADE = "<!-- Made from the code by `make reference`; do not edit. -->\n"
_ABOUT_FILES = """\
Each file is YAML in the manner of Kubernetes' component configuration: `apiVersion: vcnode.io/v1alpha1`, a
`kind`, and the keys below. An unknown key is an error. Relative paths count from the file's directory.
`--check-config` reports all errors of a file at once.
"""


def pages() -> Mapping[Path, str]:
    """What each file of the reference holds, by its path below `DIRECTORY`."""
    made = {
        "configuration.md": _configuration(),
        "metrics.md": _metrics(),
        "events.md": f"# Events and conditions\n\n{_MADE}\n{events.page()}",
        "commands.md": _commands(),
        "terminal.md": _terminal(),
        **{f"terminal/{name}.svg": screenshots.svg(*screen) for name, screen in terminals.screens().items()},
        **{f"schema/{kind.name}.json": _json(configuration.schema(kind)) for kind in KINDS},
    }
    return {Path(name): text for name, text in made.items()}


def stale() -> list[str]:
    """The files that are missing, differ, or are no page any more."""
    expected = pages()
    found = {path.relative_to(DIRECTORY) for path in DIRECTORY.rglob("*") if path.is_file()}
    return (
        sorted(
            str(path)
            for path in found | expected.keys()
            if path not in expected or path not in found or (DIRECTORY / path).read_text() != expected[path]
        )
        + stale_elsewhere()
    )


def stale_elsewhere() -> list[str]:
    """What is made of others outside of `DIRECTORY`, and differs."""
    return _stale_policy() + definitions.stale()


def _stale_policy() -> list[str]:
    """The page of SyncPolicies if its tables are not those of the code, or one of them is missing."""
    text = sync_policy.PATH.read_text()
    is_current = sync_policy.page(text) == text and not sync_policy.missing(text)
    return [] if is_current else [str(sync_policy.PATH.relative_to(ROOT))]


def write() -> None:
    """Write all, and remove what is no page any more."""
    definitions.write()
    sync_policy.PATH.write_text(sync_policy.page(sync_policy.PATH.read_text()), encoding="utf-8")
    expected = pages()
    for name in set(stale()) - set(stale_elsewhere()):
        path = DIRECTORY / name
        if Path(name) in expected:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(expected[Path(name)], encoding="utf-8")
        else:
            path.unlink()


def _configuration() -> str:
    return f"# Configuration\n\n{_MADE}\n{_ABOUT_FILES}\n" + "\n".join(map(configuration.page, KINDS))


def _metrics() -> str:
    found = metrics.by_programs(metrics.registered())
    sections = "\n".join(
        f"## {', '.join(programs)}\n\n{metrics.table(each)}"
        for programs, each in sorted(found.items(), key=lambda each: (len(each[0]) == 1, each[0]))
    )
    library = metrics.table(metrics.of_the_library())
    return (
        f"# Metrics\n\n{_MADE}\nEach daemon serves them at `/metrics` of its status address."
        f" Names are `vcnode_<daemon>_<name>_<unit>`.\n\n"
        f"## All, of the process and the platform\n\n{library}\n{sections}"
    )


def _commands() -> str:
    sections = "\n".join(f"## {name}\n\n```\n{text.rstrip()}\n```\n" for name, text in commands.helps())
    codes = "\n".join(f"| {name} | {code} | {meaning} |" for name, code, meaning in commands.exit_codes())
    table = f"| program | code | meaning |\n|---|---|---|\n{codes}\n"
    return f"# Commands and exit codes\n\n{_MADE}\n## Exit codes\n\n{table}\n{sections}"


def _terminal() -> str:
    shown = "\n".join(
        f"## {name}\n\n![`{command}` on a terminal of {screenshots.COLUMNS} columns](terminal/{name}.svg)\n"
        for name, (command, _) in terminals.screens().items()
    )
    return f"# The tool on a terminal\n\n{_MADE}\n{shown}"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
