# SPDX-License-Identifier: Apache-2.0
"""The libraries inside a tree: their files, licences and SBOM, all from what their wheels say of themselves.

A wheel's RECORD lists its files and METADATA its licence:
https://packaging.python.org/en/latest/specifications/recording-installed-packages/ and PEP 639.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

OURS = "Apache-2.0"
# What METADATA of wheels from before PEP 639 has in the field License, as SPDX.
_OLDER_NAMES = {each: each for each in ("Apache-2.0", "BSD-3-Clause", "MIT", "PSF-2.0")} | {
    "Apache 2.0": "Apache-2.0"
}
# What the full texts have, and their names in Debian's base-files.
_COMMON_LICENCES = {
    "Version 2.0, January 2004": "Apache-2.0",
}
_LICENCE_FILES = re.compile(r"(?i)(.*/)?(licen[cs]e|copying|notice|authors)[^/]*")


@dataclass(frozen=True, slots=True)
class Distribution:
    """One library: `entries` are its names at the top of the tree."""

    name: str
    version: str
    licence: str
    entries: frozenset[str]
    notes: Path

    def licence_files(self) -> list[Path]:
        """Its licence texts, as the wheel has them."""
        return sorted(
            path
            for path in self.notes.rglob("*")
            if path.is_file() and _LICENCE_FILES.fullmatch(str(path.relative_to(self.notes)))
        )


def normal(name: str) -> str:
    """A distribution's name as PyPI compares it:
    https://packaging.python.org/en/latest/specifications/name-normalization/"""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(tree: Path) -> dict[str, Distribution]:
    """All libraries of the tree but vcnode itself, by normal name. Raises `ValueError` without a licence."""
    found = {}
    for notes in tree.glob("*.dist-info"):
        headers = HeaderParser().parsestr((notes / "METADATA").read_text(encoding="utf-8"))
        name = normal(headers["Name"])
        if name == "vcnode":
            continue
        with (notes / "RECORD").open(newline="") as lines:
            tops = {row[0].split("/", 1)[0] for row in csv.reader(lines) if row}
        entries = frozenset(top for top in tops if top not in ("..", "__pycache__", "bin"))
        found[name] = Distribution(name, headers["Version"], _licence(headers), entries, notes)
    return found


def _licence(headers: Message) -> str:
    expression = headers["License-Expression"] or _OLDER_NAMES.get(headers["License"] or "")
    if not expression:
        raise ValueError(f"{headers['Name']}: its wheel names no licence that is known here")
    return str(expression)


def license_expression(tree: Path, libraries: Iterable[str]) -> str:
    """The SPDX expression of a package with these libraries."""
    known = distributions(tree)
    terms = {OURS} | {known[name].licence for name in libraries}
    return " AND ".join(f"({each})" if " OR " in each else each for each in sorted(terms))


def copyright_text(tree: Path, libraries: Iterable[str]) -> str:
    """The file `copyright` of a package, in Debian's format 1.0, with the texts of all licences.

    https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
    """
    known = distributions(tree)
    paragraphs = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: vcnode\nSource: https://vcnode.io\n",
        f"Files: *\nCopyright: 2026 The vcnode authors\nLicense: {OURS}\n",
    ]
    texts = [
        f"License: {OURS}\n"
        " On Debian systems, the complete text of the Apache License, version 2.0, is in\n"
        " /usr/share/common-licenses/Apache-2.0.\n"
    ]
    for name in libraries:
        each = known[name]
        files = " ".join(f"usr/lib/vcnode/{entry}" for entry in sorted(each.entries))
        paragraphs.append(
            f"Files: {files}\nCopyright: the authors of {each.name} {each.version}\nLicense: {_tag(each)}\n"
        )
        text = "\n".join(_reference(_text(path)) or _text(path) for path in each.licence_files())
        indented = "".join(f" {line.rstrip() or '.'}\n" for line in text.splitlines())
        texts.append(f"License: {_tag(each)}\n{indented or f' {each.licence}'}")
    return "\n".join([*paragraphs, *texts])


def licence_texts(tree: Path, libraries: Iterable[str]) -> str:
    """All licences of a package in full, for systems that have no common ones."""
    known = distributions(tree)
    ours = Path(__file__).resolve().parents[1] / "LICENSE"
    parts = [f"vcnode: {OURS}\n\n{_text(ours)}"]
    for name in libraries:
        each = known[name]
        text = "\n".join(_text(path) for path in each.licence_files())
        parts.append(f"{each.name} {each.version}: {each.licence}\n\n{text}")
    return f"\n{'-' * 72}\n\n".join(parts)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _reference(text: str) -> str:
    """Where Debian has this text (Policy 12.5); empty for one that it has not."""
    for mark, name in _COMMON_LICENCES.items():
        if mark in text:
            return f"On Debian systems, the complete text is in /usr/share/common-licenses/{name}."
    return ""


def _tag(distribution: Distribution) -> str:
    return f"{distribution.name}-{distribution.version}"


def sbom(tree: Path, libraries: Iterable[str], made_at: int) -> str:
    """A CycloneDX document in JSON for these libraries. Raises `subprocess.CalledProcessError`.

    https://cyclonedx.org/docs/1.6/json/
    """
    known = distributions(tree)
    with tempfile.TemporaryDirectory(prefix="vcnode-sbom-") as scratch:
        place = Path(scratch)
        for name in libraries:
            shutil.copytree(known[name].notes, place / "library" / known[name].notes.name)
        # The generator asks an interpreter for its libraries: this one has these alone.
        python = place / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={place}/library exec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        words = ["-m", "cyclonedx_py", "environment", "--output-reproducible", "-S", str(python)]
        done = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, *words],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(made_at)},  # noqa: TID251 - the generator reads it
        )
    return done.stdout
