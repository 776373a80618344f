# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenant` on a directory of files."""

import argparse
import datetime as dt
import fcntl
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from daemonkit.config import yaml_values
from devkit.kube.wire import kubeconfig
from devkit.pki import Authority, Leaf
from tenancy.document import parse_tenant
from tenancy.tenant import Role, Tenant
from vcnode import tenant
from vcnode.output import output_of
from vcnode.terminal import Terminal, ToolError
from vnagent.sources.files import TenantDirectory

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
SPAN: dict[str, Any] = {"not_before": NOW - dt.timedelta(days=1), "not_after": NOW + dt.timedelta(days=300)}


class Office:
    """An operator's directory of tenants, and a tenant's certificates."""

    def __init__(self, directory: Path) -> None:
        self.tenants = directory / "tenants"
        self.tenants.mkdir()
        self.files = directory / "files"
        self.authority = Authority.create("kubernetes", **SPAN)
        self.ca = self.authority.write(self.files, "ca")
        self.err = ""

    def client(self, name: str, authority: Authority | None = None) -> tuple[Path, Leaf]:
        leaf = (authority or self.authority).issue(name, usages=("client",), **SPAN)
        return leaf.write(self.files, name)[0], leaf

    def run(self, verb: str, *argv: object) -> tuple[int, str]:
        top = argparse.ArgumentParser()
        tenant.add_to(top.add_subparsers())
        out, err = io.StringIO(), io.StringIO()
        arguments = top.parse_args(
            ["tenant", verb, "--directory", str(self.tenants), *(str(each) for each in argv)]
        )
        code: int = arguments.run(arguments, Terminal(out, err, NOW, output_of(arguments)))
        self.err = err.getvalue()
        return code, out.getvalue()

    def add(self, key: str, certificate: Path, *more: object) -> str:
        code, out = self.run("add", key, "--ca", self.ca, "--client-cert", certificate, *more)
        assert code == 0
        return out

    def saved(self, name: str = "acme.yaml") -> Tenant:
        return parse_tenant(yaml_values.decode((self.tenants / name).read_text()))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_add_writes_the_file_and_prints_what_it_registers(office: Office) -> None:
    certificate, leaf = office.client("apiserver")
    assert office.add("acme", certificate) == (
        f"tenant acme: registered in {office.tenants}/acme.yaml with role apiserver\n"
        f"  client        CN=apiserver\n"
        f"  until         2027-12-26 (in 300 days)\n"
        f"  SPKI SHA-256  {leaf.spki_sha256}\n"
    )
    assert office.saved() == Tenant("acme", (office.authority.der,), {leaf.spki_sha256: Role.APISERVER})
    assert (office.tenants / "acme.yaml").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in office.tenants.iterdir()] == ["acme.yaml"]
    assert "PRIVATE" not in (office.tenants / "acme.yaml").read_text()


def test_added_client_keeps_the_others_and_their_notes(office: Office) -> None:
    (first, one), (second, two) = office.client("old-apiserver"), office.client("metrics")
    office.add("acme", first)
    assert "besides       1 other client of this tenant" in office.add("acme", second, "--role", "metrics")
    assert office.saved().clients == {one.spki_sha256: Role.APISERVER, two.spki_sha256: Role.METRICS}
    _, out = office.run("show", "acme")
    assert "apiserver, CN=old-apiserver, until 2027-12-26" in out
    assert "metrics, CN=metrics, until 2027-12-26" in out
    assert "the client was registered already" in office.add("acme", first)


def test_tenant_stays_in_its_file(office: Office) -> None:
    (first, _), (second, _) = office.client("a"), office.client("b")
    office.add("acme", first)
    (office.tenants / "acme.yaml").rename(office.tenants / "10-acme.yaml")
    office.add("acme", second)
    assert [path.name for path in office.tenants.iterdir()] == ["10-acme.yaml"]
    assert len(office.saved("10-acme.yaml").clients) == 2


def test_add_reads_a_kubeconfig_with_data_or_files(office: Office) -> None:
    _, leaf = office.client("kubernetes-admin")
    embedded = office.files / "embedded"
    embedded.write_text(kubeconfig("https://127.0.0.1:6443", office.authority.cert_pem, leaf))
    assert office.run("add", "acme", "--kubeconfig", embedded)[0] == 0
    by_files = office.files / "by-files"
    by_files.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],"
        " clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}],"
        " users: [{name: u, user: {client-certificate: kubernetes-admin.crt,"
        " client-key: kubernetes-admin.key}}]}"
    )
    assert office.run("add", "acme", "--kubeconfig", by_files)[1].startswith(
        "tenant acme: the client was registered already"
    )
    assert office.saved().clients == {leaf.spki_sha256: Role.APISERVER}
    assert "PRIVATE" not in (office.tenants / "acme.yaml").read_text()


def test_kubeconfig_without_certificates_is_an_error(office: Office) -> None:
    path = office.files / "token"
    path.write_text(kubeconfig("https://127.0.0.1:6443", office.authority.cert_pem, token="t"))
    with pytest.raises(ToolError, match="no client-certificate"):
        office.run("add", "acme", "--kubeconfig", path)
    path.write_text(kubeconfig("https://127.0.0.1:6443", None, token="t"))
    with pytest.raises(ToolError, match="no certificate-authority"):
        office.run("add", "acme", "--kubeconfig", path)
    with pytest.raises(ToolError, match="No such file"):
        office.run("add", "acme", "--kubeconfig", office.files / "none")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--ca", "x"],
        ["--client-cert", "x"],
        ["--kubeconfig", "x", "--ca", "x"],
        ["--kubeconfig", "x", "--ca", "x", "--client-cert", "x"],
        ["--ca", "x", "--client-cert", "x", "--role", "admin"],
    ],
)
def test_add_with_wrong_options_exits_2(
    office: Office, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        office.run("add", "acme", *options)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_client_of_another_tenant_is_refused(office: Office) -> None:
    certificate, _ = office.client("apiserver")
    office.add("acme", certificate)
    with pytest.raises(ToolError, match="is another tenant's"):
        office.add("globex", certificate)
    assert [path.name for path in office.tenants.iterdir()] == ["acme.yaml"]


def test_bad_or_foreign_file_is_not_overwritten(office: Office) -> None:
    certificate, _ = office.client("apiserver")
    (office.tenants / "acme.yaml").write_text("kind: Tenant\n")
    with pytest.raises(ToolError, match=r"is bad .* repair or remove it first"):
        office.add("acme", certificate)
    assert (office.tenants / "acme.yaml").read_text() == "kind: Tenant\n"
    office.add("globex", certificate)
    (office.tenants / "globex.yaml").rename(office.tenants / "initech.yaml")
    with pytest.raises(ToolError, match="the file is of tenant globex"):
        office.add("initech", office.client("b")[0])


def test_second_editor_is_refused(office: Office) -> None:
    certificate, _ = office.client("apiserver")
    descriptor = os.open(office.tenants, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ToolError, match="another vcnode is editing it"):
            office.add("acme", certificate)
    finally:
        os.close(descriptor)
    office.add("acme", certificate)


def test_missing_directory_is_an_error(office: Office) -> None:
    certificate, _ = office.client("apiserver")
    office.tenants.rmdir()
    for verb, *argv in (
        ("add", "a", "--ca", office.ca, "--client-cert", certificate),
        ("list",),
        ("show", "a"),
    ):
        with pytest.raises(ToolError, match="No such file or directory"):
            office.run(str(verb), *argv)


def test_list_exits_1_with_a_bad_file(office: Office) -> None:
    assert office.run("list") == (0, f"no tenants: {office.tenants} has no *.yaml\n")
    office.add("acme", office.client("apiserver")[0])
    assert office.run("list")[0] == 0
    (office.tenants / "bad.yaml").write_text("kind: Tenant\n")
    code, out = office.run("list")
    assert code == 1
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["TENANT", "FILE"],
        ["acme", "acme.yaml"],
        ["-", "bad.yaml"],
    ]
    code, out = office.run("list", "-o", "json")
    assert (code, [each["tenant"] for each in json.loads(out)["items"]]) == (1, ["acme", None])


def test_show_finds_a_tenant_by_key_and_a_bad_file_by_name(office: Office) -> None:
    office.add("acme", office.client("apiserver")[0])
    (office.tenants / "bad.yaml").write_text("kind: Tenant\n")
    assert office.run("show", "acme")[0] == 0
    for name in ("bad", "bad.yaml"):
        code, out = office.run("show", name)
        assert code == 1
        assert "  apiVersion: must be vcnode.io/v1alpha1\n" in out
    assert json.loads(office.run("show", "acme", "-o", "json")[1])["clients"][0]["note"].startswith(
        "CN=apiserver"
    )
    with pytest.raises(ToolError, match="no tenant globex"):
        office.run("show", "globex")


def test_remove_takes_a_client_or_the_tenant(office: Office) -> None:
    (first, one), (second, two) = office.client("a"), office.client("b")
    office.add("acme", first)
    office.add("acme", second)
    code, out = office.run("remove", "acme", "--client", one.spki_sha256[:16])
    assert (code, out) == (0, f"tenant acme: client {one.spki_sha256} removed; clients left: 1\n")
    assert list(office.saved().clients) == [two.spki_sha256]
    _, out = office.run("remove", "acme", "--client", two.spki_sha256)
    assert out.endswith("clients left: none, so no client can connect\n")
    assert office.run("remove", "acme")[0] == 0
    assert [path.name for path in office.tenants.iterdir()] == ["acme.yaml.removed"]
    with pytest.raises(ToolError, match="no tenant acme"):
        office.run("remove", "acme")


def test_removal_leaves_a_marker_for_a_day_or_until_added(office: Office) -> None:
    """By the marker vn-agent distinguishes the removal of the last tenant from a lost directory."""
    certificate, _ = office.client("a")
    for key in ("acme", "globex"):
        office.add(key, certificate)
        office.run("remove", key)
        removed_at = NOW.timestamp() - (3600 if key == "globex" else 25 * 3600)
        os.utime(office.tenants / f"{key}.yaml.removed", (removed_at, removed_at))
    office.add("initech", certificate)
    office.run("remove", "initech")
    assert _names(office) == ["globex.yaml.removed", "initech.yaml.removed"]
    assert TenantDirectory(office.tenants).read().deleted == {"globex.yaml", "initech.yaml"}
    office.add("globex", certificate)
    assert _names(office) == ["globex.yaml", "initech.yaml.removed"]
    assert TenantDirectory(office.tenants).read().deleted == {"initech.yaml"}


def _names(office: Office) -> list[str]:
    return sorted(path.name for path in office.tenants.iterdir())


def test_certificate_of_system_masters_gives_a_warning(office: Office) -> None:
    leaf = office.authority.issue("admin", organization="system:masters", usages=("client",), **SPAN)
    certificate, _ = leaf.write(office.files, "admin")
    office.add("acme", certificate)
    assert office.err.startswith("vcnode: warning: the certificate has group system:masters")
