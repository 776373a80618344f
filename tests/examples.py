# SPDX-License-Identifier: Apache-2.0
"""The READMEs' examples are the files of `examples/`: `python -m tests.examples` writes them in.

Markdown has no include. A line `<!-- examples/NAME -->` stands before a block of YAML, which is that
file without its license line. `make examples` refreshes the blocks, a unit test compares them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIRECTORY = ROOT / "examples"
_LICENSE = "# SPDX-License-Identifier: Apache-2.0\n"
_MARKED = re.compile(
    r"^<!-- examples/(?P<name>[a-z.-]+) -->\n```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_BLOCK = re.compile(r"^(?P<before>[^\n]*)\n```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_DOCUMENT = re.compile(r"^kind:", re.MULTILINE)


def readmes() -> list[Path]:
    """The documents for readers: each package's README and what is under docs."""
    return sorted([*ROOT.glob("README.md"), *ROOT.glob("[!.]*/**/README.md"), *ROOT.glob("docs/*.md")])


def shown(name: str) -> str:
    """An example as documents show it. Raises `OSError` where there is none of that name."""
    return (DIRECTORY / name).read_text(encoding="utf-8").removeprefix(_LICENSE)


def included(text: str) -> Mapping[str, str]:
    """The marked blocks of a document, by the example's name."""
    return {found["name"]: found["text"] for found in _MARKED.finditer(text)}


def refreshed(text: str) -> str:
    """The document with all marked blocks as the examples are."""
    return _MARKED.sub(
        lambda found: f"<!-- examples/{found['name']} -->\n```yaml\n{shown(found['name'])}```", text
    )


def unmarked(text: str) -> Iterator[str]:
    """First lines of blocks that are whole objects of YAML and are in no file."""
    for found in _BLOCK.finditer(text):
        if _DOCUMENT.search(found["text"]) and not found["before"].startswith("<!-- examples/"):
            yield found["text"].partition("\n")[0]


def main() -> int:
    """Write the examples into the documents."""
    for path in readmes():
        before = path.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}: refreshed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
