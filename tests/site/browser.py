# SPDX-License-Identifier: Apache-2.0
"""All pages of a site in a headless Chromium, from a server on loopback."""

from __future__ import annotations

import functools
import http.server
import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
_LOADED_S = 120.0
_FRAMES = "frames-of-all-pages.html"
# A line for each message of a page's console.
_CONSOLE = re.compile(r"INFO:CONSOLE:\d+\] (.*)")
_RESULT = re.compile(r'<pre id="result">(.*?)</pre>', re.DOTALL)
# Each page in a frame; then the length of what it shows.
_SCRIPT = """
<!doctype html><title>frames</title><pre id="result"></pre><script>
const pages = {pages};
let left = pages.length;
const shown = {{}};
for (const page of pages) {{
  const frame = document.createElement("iframe");
  frame.width = 1200; frame.height = 800;
  frame.onload = () => {{
    shown[page] = frame.contentDocument.querySelector("article")?.innerText.trim().length ?? 0;
    if (--left === 0) document.getElementById("result").textContent = JSON.stringify(shown);
  }};
  frame.src = page;
  document.body.append(frame);
}}
</script>
"""


class _SiteHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a directory; what it does not have goes to `failed`."""

    def __init__(self, *arguments: Any, script: str, failed: list[str], **more: Any) -> None:
        self._script = script.encode()
        self._failed = failed
        super().__init__(*arguments, **more)

    def do_GET(self) -> None:
        if self.path != f"/{_FRAMES}":
            super().do_GET()
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self._script)

    def log_request(self, code: int | str = "-", _: int | str = "-") -> None:
        # A browser asks for it unless a page names another.
        is_failure = code not in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED) and self.path != "/favicon.ico"
        if is_failure:
            self._failed.append(f"{self.path}: {int(code) if isinstance(code, HTTPStatus) else code}")

    def log_message(self, *_: Any) -> None:
        """Nothing: `log_request` has what matters."""


@contextmanager
def _serve(site: Path, script: str, failed: list[str]) -> Iterator[int]:
    handler = functools.partial(_SiteHandler, directory=str(site), script=script, failed=failed)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def problems(site: Path, pages: list[str]) -> list[str]:
    """Console messages, requests that failed, and pages that show nothing.

    Raises `subprocess.SubprocessError` where the browser itself fails.
    """
    failed: list[str] = []
    script = _SCRIPT.format(pages=json.dumps(pages))
    with (
        tempfile.TemporaryDirectory(prefix="vcnode-browser-") as profile,
        _serve(site, script, failed) as port,
    ):
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
        done = subprocess.run(
            [PROGRAM, *words, f"--user-data-dir={profile}", f"http://127.0.0.1:{port}/{_FRAMES}"],
            capture_output=True,
            text=True,
            timeout=_LOADED_S,
            check=True,
        )
    found = [f"console: {message}" for message in _CONSOLE.findall(done.stderr)]
    found += [f"request: {each}" for each in failed]
    result = _RESULT.search(done.stdout)
    if result is None or not result[1]:
        return [*found, f"not all of {len(pages)} pages were loaded"]
    shown: dict[str, int] = json.loads(result[1].replace("&amp;", "&"))
    found += [f"empty: {page}" for page, length in shown.items() if not length]
    return found
