# SPDX-License-Identifier: Apache-2.0
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit.kube.credentials import LOOK_EVERY_S, Credentials, CredentialsError
from daemonkit.kube.kubeconfig import Access, load
from devkit.kube.wire import kubeconfig
from devkit.pki import Authority, Leaf

SERVER = "https://127.0.0.1:6443"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("super-cluster")


@pytest.fixture(scope="module")
def leaf(authority: Authority) -> Leaf:
    return authority.issue("reader", usages=["client"])


def seconds() -> Callable[[], float]:
    """A clock by which a second has gone by at each look."""
    return itertools.count().__next__


def files(directory: Path, authority: Authority, leaf: Leaf) -> Access:
    certificate, key = leaf.write(directory, "client")
    return Access(
        SERVER, ca_file=authority.write(directory, "ca"), certificate_file=certificate, key_file=key
    )


def test_only_the_ca_of_the_cluster_is_trusted(tmp_path: Path, authority: Authority, leaf: Leaf) -> None:
    access = files(tmp_path, authority, leaf)
    tls = Credentials(lambda: access).current().tls
    assert tls is not None
    assert tls.get_ca_certs(binary_form=True) == [authority.der]
    assert tls.check_hostname


def test_embedded_credentials_need_no_file(tmp_path: Path, authority: Authority, leaf: Leaf) -> None:
    access = Access(SERVER, ca_pem=authority.cert_pem, certificate_pem=leaf.cert_pem, key_pem=leaf.key_pem)
    reads = []

    def read() -> Access:
        reads.append(access)
        return access

    assert Credentials(read).current().tls is not None
    assert list(tmp_path.iterdir()) == []
    # A context takes a millisecond, and vc-syncer makes one for each tenant at a start.
    assert len(reads) == 1


def test_loopback_needs_no_tls() -> None:
    now = Credentials(lambda: Access("http://127.0.0.1:1", token="t")).current()
    assert (now.tls, now.token) == (None, "t")
    assert "token" not in repr(now)


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    credentials = Credentials(lambda: Access("http://127.0.0.1:1", token_file=token), clock=seconds())
    assert credentials.current().token == "first"
    token.write_text("second, which no header may have")
    assert credentials.current().token == "first"
    token.write_text("")
    assert credentials.current().token == "first"
    token.unlink()
    assert credentials.current().token == "first"
    token.write_text("third")
    assert credentials.current().token == "third"


def test_files_are_looked_at_once_a_second(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    now = 5.0
    credentials = Credentials(lambda: Access("http://127.0.0.1:1", token_file=token), clock=lambda: now)
    token.write_text("second")
    now += LOOK_EVERY_S / 2
    assert credentials.current().token == "first"
    now += LOOK_EVERY_S / 2
    assert credentials.current().token == "second"
    token.write_text("third")
    assert credentials.current().token == "second"
    credentials.reload()  # as after an answer of 401
    assert credentials.current().token == "third"
    token.write_text("fourth")
    credentials.look_again()
    assert credentials.current().token == "fourth"


def test_a_token_of_a_projected_volume_is_followed(tmp_path: Path) -> None:
    """Kubelet writes a new directory and renames a link to it (pkg/volume/util/atomic_writer.go)."""
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "token").write_text(version)
    (tmp_path / "..data").symlink_to("old")
    access = Access("http://127.0.0.1:1", token_file=tmp_path / "..data" / "token")
    credentials = Credentials(lambda: access, clock=seconds())
    assert credentials.current().token == "old"
    (tmp_path / "..tmp").symlink_to("new")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert credentials.current().token == "new"


def test_a_certificate_is_used_when_its_key_matches(tmp_path: Path, authority: Authority, leaf: Leaf) -> None:
    access = files(tmp_path, authority, leaf)
    credentials = Credentials(lambda: access, clock=seconds())
    first = credentials.current().tls
    assert credentials.current().tls is first
    renewed = authority.issue("reader", usages=["client"])
    (tmp_path / "client.crt").write_bytes(renewed.cert_pem)
    # The certificate is new and the key is old: the pair before it stays in use.
    assert credentials.current().tls is first
    (tmp_path / "client.key").write_bytes(renewed.key_pem)
    second = credentials.current().tls
    assert second is not first
    assert credentials.current().tls is second


def test_a_replaced_kubeconfig_is_followed(tmp_path: Path, authority: Authority, leaf: Leaf) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(SERVER, authority.cert_pem, leaf))
    credentials = Credentials(lambda: load(path), watched=(path,), clock=seconds())
    assert credentials.current().access.server == SERVER
    path.write_text("half a kubeco")
    assert credentials.current().access.server == SERVER
    path.write_text(kubeconfig("https://127.0.0.2:6443", authority.cert_pem, leaf))
    assert credentials.current().access.server == "https://127.0.0.2:6443"


def test_unusable_credentials_at_start_are_an_error(tmp_path: Path, authority: Authority, leaf: Leaf) -> None:
    other = authority.issue("other")
    big = tmp_path / "big"
    big.write_bytes(b"")
    os.truncate(big, 2 * 1024 * 1024)
    unusable = {
        "No such file": Access(SERVER, ca_file=tmp_path / "none"),
        "certificate-authority-data: not PEM": Access(SERVER, ca_pem=b"no certificate"),
        "not the key of the client certificate": Access(
            SERVER, ca_pem=authority.cert_pem, certificate_pem=leaf.cert_pem, key_pem=other.key_pem
        ),
        "is too large": Access(SERVER, token_file=big),
        "no header may have": Access(SERVER, token="a\r\nX-Forged: 1"),
    }
    for reason, access in unusable.items():
        with pytest.raises(CredentialsError, match=reason):
            Credentials(functools.partial(_itself, access))


def _itself(access: Access) -> Access:
    return access
