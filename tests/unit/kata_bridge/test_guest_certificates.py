# SPDX-License-Identifier: Apache-2.0
import shutil
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kata_bridge.guest_certificates import SERVER_NAME, GuestCertificateError, GuestCertificates

ID = "5f3c" * 16


@pytest.fixture
def credentials(tmp_path: Path) -> GuestCertificates:
    return GuestCertificates.open(tmp_path / "state")


def modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode)
        for path in (directory, *directory.rglob("*"))
    }


def leaf_of(directory: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((directory / "tls.crt").read_bytes())


def test_only_the_owner_can_read_credentials(tmp_path: Path, credentials: GuestCertificates) -> None:
    credentials.issue(ID)
    assert modes(tmp_path / "state") == {
        ".": 0o700,
        "ca.crt": 0o600,
        "ca.key": 0o600,
        "server.crt": 0o600,
        "server.key": 0o600,
        "sandboxes": 0o700,
        f"sandboxes/{ID}": 0o700,
        f"sandboxes/{ID}/ca.crt": 0o600,
        f"sandboxes/{ID}/tls.crt": 0o600,
        f"sandboxes/{ID}/tls.key": 0o600,
    }


def test_a_sandbox_gets_a_client_certificate_in_its_name(credentials: GuestCertificates) -> None:
    leaf = leaf_of(credentials.issue(ID).directory)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(names) == [x509.UniformResourceIdentifier(f"vcnode://sandbox/{ID}")]
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert leaf.not_valid_after_utc.year == 9999
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(credentials.server.authority_pem))


def test_the_server_certificate_has_one_name_and_server_use(credentials: GuestCertificates) -> None:
    server = x509.load_pem_x509_certificate(credentials.server.certificate_pem)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.DNSName(SERVER_NAME)]
    usages = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_sandboxs_certificate_is_issued_once(credentials: GuestCertificates) -> None:
    assert credentials.issue(ID) == credentials.issue(ID)
    assert credentials.issue("other").fingerprint != credentials.issue(ID).fingerprint


def test_a_leaf_identifies_its_sandbox(credentials: GuestCertificates) -> None:
    pem = (credentials.issue(ID).directory / "tls.crt").read_bytes()
    assert credentials.sandbox_of(pem) == ID
    assert credentials.sandbox_of(b"no certificate") is None
    assert credentials.sandbox_of(credentials.server.certificate_pem) is None


def test_an_unregistered_leaf_of_the_same_name_is_refused(tmp_path: Path) -> None:
    first = GuestCertificates.open(tmp_path / "state")
    issued = first.issue(ID)
    old = (issued.directory / "tls.crt").read_bytes()
    first.revoke(ID)
    new = (first.issue(ID).directory / "tls.crt").read_bytes()
    assert first.sandbox_of(old) is None
    assert first.sandbox_of(new) == ID


def test_revoking_removes_files_and_registration(credentials: GuestCertificates) -> None:
    issued = credentials.issue(ID)
    pem = (issued.directory / "tls.crt").read_bytes()
    credentials.revoke(ID)
    credentials.revoke(ID)
    assert not issued.directory.exists()
    assert credentials.sandbox_of(pem) is None
    assert credentials.sandboxes() == frozenset()


def test_retain_revokes_all_others(credentials: GuestCertificates) -> None:
    for name in ("a", "b", "c"):
        credentials.issue(name)
    assert credentials.retain(["b", "d"]) == ("a", "c")
    assert credentials.sandboxes() == {"b"}


def test_a_failed_removal_does_not_stop_other_revocations(
    credentials: GuestCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = {name: credentials.issue(name) for name in ("a", "b", "c", "d")}
    pems = {name: (each.directory / "tls.crt").read_bytes() for name, each in issued.items()}
    remove = shutil.rmtree

    def removed(path: Path) -> None:
        if path.name in ("a", "b"):
            raise OSError(30, "Read-only file system", str(path))
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", removed)
    with pytest.raises(GuestCertificateError, match=r"/a: Read-only file system; and 1 more of 3"):
        credentials.retain(["d"])
    assert {name: credentials.sandbox_of(pem) for name, pem in pems.items()} == {
        "a": None,
        "b": None,
        "c": None,
        "d": "d",
    }
    assert not issued["c"].directory.exists()


def test_a_restart_restores_registered_certificates(tmp_path: Path, credentials: GuestCertificates) -> None:
    issued = credentials.issue(ID)
    again = GuestCertificates.open(tmp_path / "state")
    assert again.server == credentials.server
    assert again.issue(ID) == issued
    assert again.sandbox_of((issued.directory / "tls.crt").read_bytes()) == ID


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_incomplete_certificates_are_removed_at_the_start(
    tmp_path: Path, credentials: GuestCertificates, missing: str
) -> None:
    issued = credentials.issue(ID)
    (issued.directory / missing).unlink()
    (issued.directory.parent / ".half").mkdir()
    again = GuestCertificates.open(tmp_path / "state")
    assert again.sandboxes() == frozenset()
    assert list(issued.directory.parent.iterdir()) == []
    assert again.issue(ID).directory == issued.directory


def test_a_copied_certificate_in_a_directory_is_not_registered(
    tmp_path: Path, credentials: GuestCertificates
) -> None:
    one, two = credentials.issue("one"), credentials.issue("two")
    (two.directory / "tls.crt").write_bytes((one.directory / "tls.crt").read_bytes())
    foreign = GuestCertificates.open(tmp_path / "elsewhere").issue("three")
    stolen = one.directory.parent / "three"
    stolen.mkdir()
    for name in ("tls.crt", "tls.key"):
        (stolen / name).write_bytes((foreign.directory / name).read_bytes())
    assert GuestCertificates.open(tmp_path / "state").sandboxes() == {"one"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a\n", "x" * 129, "sandbox?"])
def test_an_id_that_could_be_a_path_is_refused(credentials: GuestCertificates, name: str) -> None:
    with pytest.raises(GuestCertificateError, match="is not a valid sandbox id"):
        credentials.issue(name)


def test_a_missing_authority_with_certificates_is_an_error(
    tmp_path: Path, credentials: GuestCertificates
) -> None:
    credentials.issue(ID)
    (tmp_path / "state" / "ca.crt").unlink()
    with pytest.raises(GuestCertificateError, match=r"ca\.crt is missing, but guests have certificates"):
        GuestCertificates.open(tmp_path / "state")


def test_a_key_that_does_not_match_is_reported(tmp_path: Path, credentials: GuestCertificates) -> None:
    state = tmp_path / "state"
    (state / "ca.key").write_bytes((state / "server.key").read_bytes())
    with pytest.raises(GuestCertificateError, match=r"ca\.key is not the key of .*ca\.crt"):
        GuestCertificates.open(state)
    (state / "ca.key").unlink()
    with pytest.raises(GuestCertificateError, match=r"ca\.key: No such file"):
        GuestCertificates.open(state)


def test_a_full_disk_leaves_no_incomplete_directory(
    credentials: GuestCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    def full(*_args: object) -> object:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        with pytest.raises(GuestCertificateError, match="No space left"):
            credentials.issue(ID)
    assert credentials.sandboxes() == frozenset()
    assert credentials.issue(ID).directory.is_dir()
