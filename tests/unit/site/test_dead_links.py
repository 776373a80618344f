# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.site import dead_links


@pytest.mark.parametrize(
    ("link", "is_dead"),
    [
        ('<a href="other.html">', False),
        ('<a href="other.html#here">', False),
        ('<a href="#own">', False),
        ('<a href="folder/">', False),
        ('<a href="https://example.org/">', False),
        ('<img src="data:image/png;base64,AA==">', False),
        ('<a href="none.html">', True),
        ('<a href="other.html#nowhere">', True),
        ('<a href="#nowhere">', True),
        ('<a href="../outside.html">', True),
        ('<a href="javascript:void(0)">', True),
        ('<img src="https://example.org/x.png">', True),
        ('<script src="//example.org/x.js"></script>', True),
        ('<link href="none.css">', True),
    ],
)
def test_links_that_lead_nowhere_are_found(link: str, is_dead: bool, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "folder").mkdir(parents=True)
    (tmp_path / "outside.html").write_text("")
    (site / "folder" / "index.html").write_text("")
    (site / "other.html").write_text('<p id="here">')
    (site / "page.html").write_text(f'<p id="own">{link}')
    assert bool(list(dead_links.find(site))) is is_dead
