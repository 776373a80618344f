# SPDX-License-Identifier: Apache-2.0
"""A certificate of another program: followed, never replaced by what cannot be used."""

import os
from pathlib import Path

import pytest

from daemonkit.tls.contexts import TlsError
from dns_webhook.config import Serving
from dns_webhook.given_certificate import GivenCertificate


class Files:
    """Both files, and how often the server began to use them."""

    def __init__(self, directory: Path) -> None:
        self._serving = Serving(directory / "tls.crt", directory / "tls.key")
        self.shown = 0
        self.error = ""
        self.write("one")
        self.followed = GivenCertificate(self._serving, self._show)
        self.followed.begin()

    def write(self, text: str) -> None:
        for path in (self._serving.certificate_file, self._serving.key_file):
            path.write_text(text)
            # Older than the tick of a file system, so that equal times mean equal content.
            os.utime(path, (1_000_000, 1_000_000 + len(text)))

    def _show(self) -> None:
        if self.error:
            raise TlsError(self.error)
        self.shown += 1


def test_unchanged_files_are_not_read_into_the_server(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.followed.poll()
    assert files.shown == 0


def test_renewed_certificate_is_used(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("another")
    files.followed.poll()
    files.followed.poll()
    assert files.shown == 1


def test_unusable_files_are_tried_again_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Files(tmp_path)
    files.error = "tls.key: not the key of tls.crt"
    files.write("half")
    for _ in range(2):
        files.followed.poll()
    assert (files.shown, files.followed.renewal_problem) == (0, files.error)
    assert capsys.readouterr().err.count("cannot use the renewed certificate") == 1
    files.error = ""
    files.followed.poll()
    assert (files.shown, files.followed.renewal_problem) == (1, "")


def test_it_is_published_by_another_program(tmp_path: Path) -> None:
    followed = Files(tmp_path).followed
    assert followed.is_published
    assert followed.problem == ""
