# SPDX-License-Identifier: Apache-2.0
"""`vcnode bugreport`: one archive with what a maintainer needs to know of this node. It changes nothing."""

import argparse
import contextlib
import gzip
import io
import json
import os
import platform
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from daemonkit.config import yaml_values
from daemonkit.status.server import ListenAddress, StatusError, fetch
from daemonkit.version import VERSION
from vcnode import config_checks, daemons, input_file
from vcnode.core import findings
from vcnode.core.bug_report import (
    Redaction,
    TooManyNamesError,
    collect,
    last_lines,
    names_left,
    replace_names,
)
from vcnode.core.doctor import diagnose
from vcnode.core.known_text import Removals, known_document, known_log, known_text
from vcnode.node_probes import gather
from vcnode.output import add_output, document
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError

# In characters.
MAX_PART = 4 << 20
LOG_LINES = 2_000
_COMMAND_S = 10.0
_PAGES = ("readyz", "status", "metrics")
# Of a unit: neither its environment nor its command lines.
_UNIT_PROPERTIES = (
    *("ActiveState", "SubState", "Result", "UnitFileState", "ActiveEnterTimestamp", "InactiveEnterTimestamp"),
    *("ExecMainStartTimestamp", "ExecMainExitTimestamp", "ExecMainCode", "ExecMainStatus", "NRestarts"),
    *("MemoryCurrent", "MemoryPeak", "MemoryMax", "CPUUsageNSec", "TasksCurrent", "TasksMax", "LimitNOFILE"),
)
_README = """\
A report about one node of vcnode, version {version}, written at {now}.
manifest.json lists its files, and what could not be had. Of each text only what has a known, harmless form
is here, and nothing that follows a key of a secret; the rest reads [removed]. {names}
Read it before you send it: log lines may contain names that vcnode does not recognize.
"""
_NAMES_REPLACED = "Names of tenants and of their objects are replaced by pseudonyms, the same in all files."
_NAMES_KEPT = "Names of tenants and of their objects are in it."


@dataclass(slots=True)
class Parts:
    """Texts by their place in the archive, and why others are absent."""

    texts: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, read: Callable[[], str]) -> None:
        """What `read` returns, of that at most `MAX_PART` characters in whole lines; or why it raised."""
        try:
            text = read()
        except (OSError, ToolError, StatusError, subprocess.SubprocessError) as error:
            self.problems[name] = str(error) or type(error).__name__
            return
        if len(text) > MAX_PART:
            self.problems[name] = f"longer than {MAX_PART} characters: only its last lines are here"
        self.texts[name] = last_lines(text, MAX_PART)


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "bugreport",
        help="one archive for a bug report: states, configurations and logs, without secrets and names",
        description="Write the daemons' pages, configurations and logs, and what doctor finds, into one"
        " archive. What has no known, harmless form is removed, names of tenants and of their objects are"
        " replaced. Exit code 0 if everything is in it, 1 if something could not be had, 3 without an"
        " archive.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="the archive, a new file (default: vcnode-report-TIME.tar.gz in this directory)",
    )
    parser.add_argument("--keep-names", action="store_true", help="leave the names of tenants as they are")
    config_checks.add_directory(parser)
    daemons.add_addresses(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Gather, redact, write. Raises ToolError."""
    target = arguments.file or Path(f"vcnode-report-{terminal.now:%Y%m%dT%H%M%SZ}.tar.gz")
    with _new_file(target) as out:
        parts = _gather(arguments, terminal)
        removals = _keep_known(parts)
        redaction = _replace_names(parts, keep_names=arguments.keep_names)
        names = _NAMES_KEPT if arguments.keep_names else _NAMES_REPLACED
        about = _README.format(version=VERSION, now=f"{terminal.now:%Y-%m-%d %H:%M} UTC", names=names)
        manifest = {
            "version": VERSION,
            "writtenAt": f"{terminal.now:%Y-%m-%dT%H:%M:%SZ}",
            "files": {name: len(text.encode()) for name, text in sorted(parts.texts.items())},
            "problems": dict(sorted(parts.problems.items())),
            "removedValues": removals.count,
            "replacedNames": 0 if arguments.keep_names else len(redaction.pseudonyms),
        }
        texts = {
            "README.txt": about,
            "manifest.json": f"{json.dumps(document('BugReport', manifest), indent=2)}\n",
            **parts.texts,
        }
        out.write(_archive(texts, target.name.removesuffix(".gz").removesuffix(".tar"), terminal))
    if terminal.is_document:
        terminal.document("BugReport", {"file": str(target), **manifest})
    else:
        _write_lines(target, parts, manifest, terminal)
    return EXIT_NEGATIVE if parts.problems else 0


def _write_lines(target: Path, parts: Parts, manifest: dict[str, Any], terminal: Terminal) -> None:
    for name, problem in sorted(parts.problems.items()):
        terminal.warn(f"{name}: {problem}")
    terminal.line(
        f"{target}: {len(parts.texts)} files, {manifest['removedValues']} values removed,"
        f" {manifest['replacedNames']} names replaced"
    )
    terminal.line("read it before you send it")


@contextlib.contextmanager
def _new_file(target: Path) -> Iterator[io.BufferedWriter]:
    """For its owner alone; it is gone again if the block fails. Raises ToolError."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ToolError(f"{target}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ToolError(f"{target}: {error.strerror}") from None
        raise


def _gather(arguments: argparse.Namespace, terminal: Terminal) -> Parts:
    parts = Parts()
    try:
        addresses = daemons.addresses_of(arguments)
    except ToolError as error:
        parts.problems["daemons"] = str(error)
        addresses = []
    directory: Path = arguments.config_directory
    readers: dict[str, Callable[[], str]] = {}
    for where in addresses:
        readers |= _of_daemon(where)
    for path in sorted(directory.glob("*.yaml")):
        readers[f"configuration/{path.name}"] = partial(_configuration, path)
    for daemon in daemons.STATUS_SOCKETS:
        if (directory / f"{daemon}.yaml").exists():
            readers |= _of_unit(daemon)
    readers |= {
        "node/doctor.json": partial(_doctor, directory, terminal),
        "node/platform.txt": _platform,
        "node/containerd.txt": partial(_run, "containerd", "--version"),
        "node/packages.txt": _packages,
    }
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: parts.add(*each), readers.items()))
    return parts


def _of_daemon(where: ListenAddress) -> dict[str, Callable[[], str]]:
    name = daemons.name_of(where).strip("/").replace("/", "-").removesuffix(".sock")
    return {f"daemons/{name}/{page}": partial(_page, where, page) for page in _PAGES}


def _configuration(path: Path) -> str:
    return input_file.read(path).decode(errors="replace")


def _page(where: ListenAddress, page: str) -> str:
    code, body = fetch(where, f"/{page}", daemons.TIMEOUT_S)
    text = body.decode(errors="replace")
    # Others than 200 are what a maintainer wants to see.
    return text if code == 200 else f"{code}\n{text}"


def _of_unit(daemon: str) -> dict[str, Callable[[], str]]:
    return {
        f"units/{daemon}.txt": partial(
            _run, "systemctl", "show", f"--property={','.join(_UNIT_PROPERTIES)}", f"{daemon}.service"
        ),
        f"logs/{daemon}.txt": partial(
            _run, "journalctl", f"--unit={daemon}", f"--lines={LOG_LINES}", "--no-pager", "--output=short-iso"
        ),
    }


def _doctor(directory: Path, terminal: Terminal) -> str:
    facts = gather(directory, None, terminal.now.timestamp())
    return f"{json.dumps({'items': findings.as_json(diagnose(facts))}, indent=2)}\n"


def _platform() -> str:
    release = Path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    return f"{platform.platform()}\nPython {platform.python_version()}\nvcnode {VERSION}\n{release}"


def _packages() -> str:
    try:
        return _run("dpkg-query", "--show", "vcnode*")
    except FileNotFoundError:
        return _run("rpm", "--query", "--all", "vcnode*")


def _run(*words: str) -> str:
    """What the program printed, errors too. Raises OSError or `subprocess.SubprocessError`."""
    done = subprocess.run(  # noqa: S603 - our own words
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_COMMAND_S,
        check=True,
    )
    return done.stdout.decode(errors="replace")


def _keep_known(parts: Parts) -> Removals:
    """Change all texts to what is known to be harmless in them, each in its own form."""
    removals = Removals()
    for name, text in parts.texts.items():
        parts.texts[name] = _known(removals, name, text)
    parts.problems = {name: known_text(removals, text) for name, text in parts.problems.items()}
    return removals


def _known(removals: Removals, name: str, text: str) -> str:
    if name.startswith("logs/"):
        return known_log(removals, text)
    if name.startswith("configuration/"):
        try:
            value = yaml_values.decode(text)
        except yaml_values.YamlError:
            removals.one()
            return f"{len(text)} characters that are no YAML\n"
        return f"{json.dumps(known_document(removals, value), indent=2)}\n"
    if text.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            return f"{json.dumps(known_document(removals, json.loads(text)), indent=2)}\n"
    return known_text(removals, text)


def _replace_names(parts: Parts, *, keep_names: bool) -> Redaction:
    """Change all texts. Raises ToolError if a name of a tenant is left."""
    redaction = Redaction()
    if keep_names:
        return redaction
    try:
        for text in list(parts.texts.values()):
            for value in _documents(text):
                collect(redaction, value)
        parts.texts = replace_names(redaction, parts.texts)
        parts.problems = replace_names(redaction, parts.problems)
    except TooManyNamesError as error:
        raise ToolError(f"{error}: not all of them can be replaced; no report was written") from None
    if names_left(redaction, [*parts.texts.values(), *parts.problems.values()]):
        raise ToolError("a tenant's name could not be replaced everywhere; no report was written")
    return redaction


def _documents(text: str) -> Iterator[Any]:
    """The JSON of a page, or of the lines of a log; lines of other text have none."""
    for part in (text, *(text.splitlines() if not text.startswith("{\n") else ())):
        start = part.find("{")
        if start >= 0 and part.rstrip().endswith("}"):
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(part[start:])


def _archive(texts: dict[str, str], folder: str, terminal: Terminal) -> bytes:
    """A tar.gz with all texts below `folder`."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=terminal.now.timestamp()) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, text in texts.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(terminal.now.timestamp())
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
