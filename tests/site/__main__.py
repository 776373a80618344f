# SPDX-License-Identifier: Apache-2.0
"""Examines a built site: `python -m tests.site SITE [--require]`.

Exit code 0 when every link leads somewhere and every page renders without a message in the browser's console,
1 when not. Without the browser one line says so (exit code 1 with `--require`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.site import browser, dead_links


def main() -> int:
    """Print what was examined and what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.site")
    parser.add_argument("site", type=Path)
    parser.add_argument("--require", action="store_true")
    chosen = parser.parse_args()
    site: Path = chosen.site.resolve()
    began = time.monotonic()
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    found = list(dead_links.find(site))
    has_browser = shutil.which(browser.PROGRAM) is not None
    if has_browser:
        _try_a_broken_site()
        # These two show nothing before a reader types.
        found += browser.problems(
            site, [each for each in pages if each not in ("search.html", "genindex.html")]
        )
    else:
        sys.stdout.write(f"site: NOT RENDERED: apt-get install {browser.PROGRAM}\n")
    for each in found:
        sys.stdout.write(f"site: {each}\n")
    rendered = "rendered" if has_browser else "examined"
    sys.stdout.write(
        f"site: {len(pages)} pages {rendered}, {len(found)} problems, {time.monotonic() - began:.0f} s\n"
    )
    return 1 if found or (chosen.require and not has_browser) or not pages else 0


def _try_a_broken_site() -> None:
    """Its faults are found. Raises `AssertionError`."""
    with tempfile.TemporaryDirectory(prefix="vcnode-site-") as scratch:
        site = Path(scratch)
        (site / "bad.html").write_text(
            '<article>text<img src="none.png"></article><script>console.error("planted")</script>'
        )
        (site / "empty.html").write_text("<article></article>")
        found = browser.problems(site, ["bad.html", "empty.html"])
    parts = ('console: "planted"', "request: /none.png: 404", "empty: empty.html")
    assert [part for part in parts if not any(part in each for each in found)] == [], found
    assert not any("empty: bad.html" in each for each in found), found


if __name__ == "__main__":
    sys.exit(main())
