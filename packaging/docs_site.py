# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation as a site: `python packaging/docs_site.py OUT`.

Its pages are the Markdown files of the repository, at their places, with all that they link to. Sphinx reads
them by MyST, which is CommonMark with GitHub's anchors. A warning, such as a link or an anchor that leads
nowhere, ends the build: exit code 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
# By what a reader wants to do. Each Markdown file is in one group, the first that matches.
GROUPS = (
    (
        "Install and operate",
        ("systemd/*", "docs/operate.md", "docs/observability.md", "docs/scale.md", "vcnode/*"),
    ),
    ("When something is wrong", ("docs/troubleshoot.md", "docs/runbooks.md")),
    ("Understand", ("docs/architecture.md", "docs/threat-model.md", "docs/guests.md", "docs/glossary.md")),
    (
        "Compare and measure",
        ("docs/performance.md", "docs/comparison.md", "docs/conformance.md", "tests/bench/*"),
    ),
    ("Reference", ("docs/reference/*", "CHANGELOG.md")),
    (
        "Daemons",
        ("vnagent/*", "kubeproxy_ext/*", "kata_bridge/*", "dnsconfig/*", "dns_webhook/*", "syncer/*"),
    ),
    ("Specification", ("docs/spec/*",)),
    ("Work on it", ("CONTRIBUTING.md", "docs/walkthroughs/*", "docs/decisions/*", "*")),
)
_LINK = re.compile(r"(\]\(|^ {0,3}\[[^\]]+\]: )([^)\s#:]+)(#[^)\s]*)?(?=[)\s])", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CONF = """\
project = "vcnode"
author = copyright = "The vcnode authors"
extensions = ["myst_parser"]
myst_heading_anchors = 6
html_theme = "furo"
html_title = "vcnode"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = []
"""


def main(argv: list[str]) -> int:
    """Build it. Returns the exit code."""
    out = Path(argv[0]).resolve()
    with tempfile.TemporaryDirectory(prefix="vcnode-site-") as scratch:
        source = Path(scratch) / "source"
        gather(tracked(), source)
        (source / "conf.py").write_text(_CONF)
        shutil.rmtree(out, ignore_errors=True)
        words = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--jobs=auto"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}  # noqa: TID251 - Sphinx reads it
        built = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, *words, str(source), str(out)], check=False, env=environment
        )
    return built.returncode


def tracked() -> list[Path]:
    """The files that git has or would have, relative to the root."""
    words = ["git", "-C", str(SOURCE), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")  # noqa: S603 - as above
    return sorted(Path(name) for name in names if name and (SOURCE / name).exists())


def gather(files: Iterable[Path], target: Path) -> None:
    """Write the pages, what they link to, and an index of them below `target`."""
    known = list(files)
    pages = [path for path in known if path.suffix == ".md"]
    linked: set[Path] = set()
    for page in pages:
        text = (SOURCE / page).read_text(encoding="utf-8")
        place = target / (page if page != Path("README.md") else "index.md")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_rewritten(page, text, linked), encoding="utf-8")
    for path in sorted(linked):
        if (SOURCE / path).is_dir():
            _write_listing(path, known, target)
        else:
            _copy(path, target)
    with (target / "index.md").open("a", encoding="utf-8") as index:
        index.write(_index(_pages_below(target)))


def _rewritten(page: Path, text: str, linked: set[Path]) -> str:
    """The page with links to folders leading to their pages. `linked` gets what is no page."""

    def rewrite(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / found[2]))
        if not (SOURCE / target).exists():
            return found[0]
        if target == Path("README.md"):
            return f"{found[1]}{os.path.relpath('index.md', page.parent)}{found[3] or ''}"
        if (SOURCE / target).is_dir():
            if not (SOURCE / target / "README.md").exists():
                linked.add(target)
            return f"{found[1]}{os.path.relpath(target / 'README.md', page.parent)}{found[3] or ''}"
        if target.suffix != ".md":
            linked.add(target)
        return found[0]

    at = 0
    parts = []
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(rewrite, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, _LINK.sub(rewrite, text[at:])])


def _write_listing(folder: Path, files: Iterable[Path], target: Path) -> None:
    """A page for a folder that has none: its files."""
    inside = [path for path in files if path.is_relative_to(folder) and path.suffix != ".md"]
    lines = [
        f"# {folder}\n",
        *(f"- [{path.relative_to(folder)}]({path.relative_to(folder)})" for path in inside),
    ]
    for path in inside:
        _copy(path, target)
    page = target / folder / "README.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _copy(path: Path, target: Path) -> None:
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SOURCE / path, target / path)


def _pages_below(target: Path) -> list[Path]:
    found = (path.relative_to(target) for path in target.rglob("*.md"))
    return sorted(path for path in found if path != Path("index.md"))


def _index(pages: Iterable[Path]) -> str:
    """The tables of contents of all groups."""
    left = list(pages)
    text = ""
    for title, patterns in GROUPS:
        group = [
            page for pattern in patterns for page in left if page.match(pattern) or _is_below(page, pattern)
        ]
        group = list(dict.fromkeys(group))
        left = [page for page in left if page not in group]
        entries = "\n".join(str(page) for page in group)
        text += f"\n```{{toctree}}\n:caption: {title}\n:maxdepth: 1\n:hidden:\n\n{entries}\n```\n"
    return text


def _is_below(page: Path, pattern: str) -> bool:
    return pattern.endswith("/*") and page.is_relative_to(pattern.removesuffix("/*"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
