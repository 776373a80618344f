# SPDX-License-Identifier: Apache-2.0
"""The file of the authority of nodes is followed, and what is no authority replaces none."""

from pathlib import Path

import pytest

from tenant_operator.edge.nodes_authority import NodesAuthority
from tenant_operator.pki import issuing
from tenant_operator.pki.catalog import AUTHORITIES
from tests.unit.tenant_operator.core.worlds import NOW


def authority() -> bytes:
    pem: bytes = issuing.authority_data(issuing.new_authority(AUTHORITIES[0], NOW))["tls.crt"]
    return pem


@pytest.fixture(autouse=True)
def _a_clock_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll reads the content; its modification time does not matter."""
    monkeypatch.setattr("daemonkit.files.watched.Watched._changed_recently", lambda _: True)


def test_another_authority_is_used(tmp_path: Path) -> None:
    path, old, new = tmp_path / "ca.crt", authority(), authority()
    path.write_bytes(old)
    found = NodesAuthority(path)
    assert (found.poll(), found.pem) == (False, old)
    path.write_bytes(old + new)
    assert (found.poll(), found.pem) == (True, old + new)
    assert not found.poll()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "no certificate in it; expected PEM"),
        (b"-----BEGIN CERTIFICATE-----\n", "the last certificate has no end line; the file is cut"),
        (None, "does not exist"),
    ],
)
def test_what_is_no_authority_replaces_none(tmp_path: Path, text: bytes | None, problem: str) -> None:
    path, old = tmp_path / "ca.crt", authority()
    path.write_bytes(old)
    found = NodesAuthority(path)
    path.unlink()
    if text is not None:
        path.write_bytes(text)
    assert (found.poll(), found.pem, found.problem) == (False, old, problem)
    new = authority()
    path.write_bytes(new)
    assert (found.poll(), found.pem, found.problem) == (True, new, "")


def test_start_needs_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        NodesAuthority(tmp_path / "ca.crt")
