# SPDX-License-Identifier: Apache-2.0
"""`vcnode init` writes files that daemons, OpenSSL and a second run accept."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from daemonkit.config import binding
from daemonkit.tls import contexts
from devkit.pki import Authority
from tests import guide
from tests.functional.vcnode.node_roots import NODE, NodeRoot, common_name_of_client, verify
from vcnode import init_authority
from vcnode.core import init_plan
from vcnode.core.init_plan import NodeDaemon
from vnagent.config import KIND, VnAgentConfiguration

PKI = Path("etc/vcnode/pki")


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[NodeRoot]:
    made = NodeRoot(tmp_path, capsys)
    assert made.run("ca", made.ca)[0] == 0
    yield made
    assert not list(made.root.rglob(".*.tmp"))


def test_openssl_accepts_all_certificates(site: NodeRoot) -> None:
    site.init("--name", "node-7.example.com", "--name", "fd00::17")
    pki = site.root / PKI
    for name in ("10.0.0.17", "fd00::17"):
        verify(site.ca / "serving-ca.crt", pki / "vn-agent/serving.crt", "sslserver", "-verify_ip", name)
    for name in ("node-7", "node-7.example.com"):
        verify(
            site.ca / "serving-ca.crt", pki / "vn-agent/serving.crt", "sslserver", "-verify_hostname", name
        )
    verify(site.ca / "client-ca.crt", pki / "vn-agent/kubelet-client.crt", "sslclient")
    for daemon in ("kata-bridge", "kubeproxy-ext", "dnsconfig"):
        verify(site.ca / "client-ca.crt", pki / daemon / "client.crt", "sslclient")


def test_an_authority_of_clients_issues_no_serving_certificate(site: NodeRoot) -> None:
    """Tenants trust the serving authority, the super cluster the client authority: neither is for both."""
    for used, purpose in (("client", "sslserver"), ("serving", "sslclient")):
        with pytest.raises(subprocess.CalledProcessError):
            verify(site.ca / f"{used}-ca.crt", site.ca / f"{used}-ca.crt", purpose)
    code, _, err = site.node(
        "--client-ca", site.ca / "serving-ca.crt", "--client-ca-key", site.ca / "serving-ca.key"
    )
    assert code == 3
    assert "its extended key usage does not allow client certificates" in err


def test_issued_certificates_shake_hands(site: NodeRoot) -> None:
    site.init()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(site.root / PKI / "vn-agent/serving.crt", site.root / PKI / "vn-agent/serving.key")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(site.ca / "client-ca.crt")
    client = ssl.create_default_context(cafile=str(site.ca / "serving-ca.crt"))
    client.load_cert_chain(site.root / PKI / "dnsconfig/client.crt", site.root / PKI / "dnsconfig/client.key")
    down, up = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="10.0.0.17")
    theirs = server.wrap_bio(up, down, server_side=True)
    waiting = [ours, theirs]
    for _ in range(10):
        for each in list(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                continue
    assert waiting == []
    subject = dict(pair for group in (theirs.getpeercert() or {})["subject"] for pair in group)  # type: ignore[misc]
    assert subject == {"organizationName": "vcnode:dnsconfigs", "commonName": "vcnode:dnsconfig:node-7"}


def test_a_second_run_changes_nothing(site: NodeRoot) -> None:
    assert "files written: 25, unchanged: 0" in site.init()
    before = site.files()
    assert site.init().startswith("nothing to do: 25 files are as they should be\nKeys of authorities were")
    code, out, _ = site.run("node", "--root", site.root)
    assert (code, out) == (0, "nothing to do: 25 files are as they should be\n"), (
        "the node knows its settings"
    )
    assert site.files() == before


def test_documents_are_printed_for_programs(site: NodeRoot) -> None:
    """Each of the verbs; the files are those of the text."""
    options = ("--ca-directory", site.ca, "--super-ca", site.super_ca, "--kubelet-ca", site.kubelet_ca)
    for words in (
        ("ca", site.directory / "second"),
        ("bundle", "--out", site.directory / "bundle", *NODE, *options),
        ("node", "--root", site.root, *NODE, *options),
    ):
        printed = json.loads(site.run(*words, "-o", "json")[1])
        assert (printed["apiVersion"], printed["kind"]) == ("vcnode.io/v1alpha1", "InitReport")
        assert {each["action"] for each in printed["files"]} == {"created"}
        assert printed["nextSteps"]
    issuers = ("--client-issuer", "clients", "--serving-issuer", "serving")
    printed = json.loads(site.run("certificates", *NODE[:4], *issuers, "-o", "json")[1])
    assert {each["kind"] for each in printed["items"]} == {"Certificate"}


def test_a_dry_run_writes_nothing(site: NodeRoot) -> None:
    out = site.init("--dry-run")
    assert "files would be written (--dry-run): 25, unchanged: 0" in out
    assert not (site.root / "etc/vcnode").exists()


def test_keys_are_for_their_owner_alone(site: NodeRoot) -> None:
    site.init()
    keys = list((site.root / PKI).rglob("*.key"))
    assert len(keys) == 5
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in keys} == {0o700}
    keys[0].chmod(0o644)
    assert "its owner or mode was different" in site.init()
    assert keys[0].stat().st_mode & 0o777 == 0o600


def test_daemons_read_the_configuration(site: NodeRoot) -> None:
    site.init()
    path = site.root / "etc/vcnode/vn-agent.yaml"
    bound = binding.load(path, VnAgentConfiguration, kind=KIND)
    assert (bound.node_name, bound.listen.address, bound.limits.tunnels_per_tenant) == (
        "node-7",
        "10.0.0.17",
        1024,
    )


def test_vn_agent_reads_virtual_clusters(site: NodeRoot) -> None:
    site.init("--tenants", "virtualclusters")
    found = binding.load(site.root / "etc/vcnode/vn-agent.yaml", VnAgentConfiguration, kind=KIND)
    assert found.tenants.kubeconfig_file == Path("/etc/vcnode/vn-agent.kubeconfig")
    access = yaml.safe_load((site.root / "etc/vcnode/vn-agent.kubeconfig").read_text())
    assert access["users"][0]["user"]["client-certificate"] == "pki/vn-agent/client.crt"
    verify(site.ca / "client-ca.crt", site.root / PKI / "vn-agent/client.crt", "sslclient")
    assert "vcnode:vn-agent-tenants" in (site.root / "etc/vcnode/rbac/vn-agent-tenants.yaml").read_text()
    before = site.files()
    assert site.init().startswith("nothing to do"), "it is kept"
    assert site.files() == before


def test_a_node_with_one_package_gets_its_files_alone(site: NodeRoot) -> None:
    for daemon in ("kata-bridge", "kubeproxy-ext", "dnsconfig"):
        (site.root / "usr/bin" / daemon).unlink()
    site.init()
    assert sorted(site.files()) == [
        "node.json",
        "pki/kubelet-ca.crt",
        "pki/vn-agent/kubelet-client.crt",
        "pki/vn-agent/kubelet-client.key",
        "pki/vn-agent/serving.crt",
        "pki/vn-agent/serving.key",
        "rbac/vn-agent.yaml",
        "vn-agent.yaml",
    ]


def test_an_edited_file_stays_until_forced(site: NodeRoot) -> None:
    site.init()
    path = site.root / "etc/vcnode/dnsconfig.yaml"
    edited = path.read_text() + "# mine\n"
    path.write_text(edited)
    assert "it has been edited" in site.init()
    new = path.with_name("dnsconfig.yaml.new")
    assert (path.read_text(), new.read_text()) == (edited, edited.removesuffix("# mine\n"))
    assert "nothing to do: 26 files" in site.init(), "the file beside it is written once"
    site.init("--force")
    assert path.read_text() == new.read_text()


def test_a_packages_configuration_is_written_without_asking(site: NodeRoot) -> None:
    """The packages install a file without a key, and its copy (packaging/packages.py)."""
    stub = "# `vcnode init` writes this file.\napiVersion: vcnode.io/v1alpha1\nkind: DnsConfigConfiguration\n"
    path, copy = (
        site.root / place / "dnsconfig.yaml" for place in ("etc/vcnode", "usr/share/vcnode/configuration")
    )
    for each in (path, copy):
        each.parent.mkdir(parents=True)
        each.write_text(stub)
    assert "it has been edited" not in site.init()
    assert init_plan.is_as_written(path.read_text())
    path.write_text(stub.replace("# `vcnode init`", "# I,"))
    assert "it has been edited" in site.init()


def test_other_settings_replace_what_nobody_edited(site: NodeRoot) -> None:
    site.init()
    assert "/etc/vcnode/kubeproxy-ext.yaml" in site.init("--service-cidr", "10.96.0.0/16")
    assert 'serviceCIDRs: ["10.96.0.0/16"]' in (site.root / "etc/vcnode/kubeproxy-ext.yaml").read_text()


def test_rights_are_of_this_node(site: NodeRoot) -> None:
    site.init()
    rights = (site.root / "etc/vcnode/rbac/vn-agent.yaml").read_text()
    assert "resourceNames: [node-7]" in rights
    assert "node-1" not in rights


def test_another_name_needs_renew(site: NodeRoot) -> None:
    site.init()
    before = site.files()
    code, _, err = site.node("--ca-directory", site.ca, "--name", "new.example.com")
    assert code == 3
    assert "serving.crt: it is not valid for new.example.com; replace it with --renew" in err
    assert site.files() == before, "all or nothing"
    site.init("--name", "new.example.com", "--renew")
    assert site.files()["pki/dnsconfig/client.key"] != before["pki/dnsconfig/client.key"]


def test_half_a_pair_is_issued_again(site: NodeRoot) -> None:
    site.init()
    (site.root / PKI / "dnsconfig/client.crt").unlink()
    site.init()
    verify(site.ca / "client-ca.crt", site.root / PKI / "dnsconfig/client.crt", "sslclient")


def test_a_bundle_has_all_that_a_node_needs(site: NodeRoot) -> None:
    out = site.directory / "bundle"
    arguments = ("--super-ca", site.super_ca, "--kubelet-ca", site.kubelet_ca, "--ca-directory", site.ca)
    assert site.run("bundle", "--out", out, *NODE, *arguments)[0] == 0
    assert site.run("bundle", "--out", out, "--ca-directory", site.ca)[1] == (
        "nothing to do: 21 files are as they should be\n"
    )
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.rglob("tls.key")} == {0o600}
    code, printed, err = site.run("node", "--root", site.root, "--bundle", out)
    assert (code, err) == (0, "")
    assert "files written: 25, unchanged: 0" in printed
    verify(site.ca / "client-ca.crt", site.root / PKI / "dnsconfig/client.crt", "sslclient")
    assert site.run("node", "--root", site.root, "--bundle", out)[1].startswith("nothing to do: 25 files")
    assert site.run("bundle", "--out", out, "--ca-directory", site.ca, "--renew", "--days", 500)[0] == 0
    assert "a later one was given" in site.run("node", "--root", site.root, "--bundle", out)[1]


def test_a_bundle_of_vc_syncer_needs_no_address(site: NodeRoot) -> None:
    out = site.directory / "bundle"
    options = ("--node-name", "control", "--server", "https://10.0.0.1:6443", "--daemons", "vc-syncer")
    authorities = ("--super-ca", site.super_ca, "--ca-directory", site.ca)
    with (site.root / "etc/passwd").open("a") as users:
        users.write("vc-syncer:x:0:0::/:/bin/sh\n")
    assert site.run("bundle", "--out", out, *options, *authorities)[0] == 0
    code, _, err = site.run("node", "--root", site.root, "--bundle", out)
    assert (code, err) == (0, "")
    verify(site.ca / "client-ca.crt", site.root / PKI / "vc-syncer/client.crt", "sslclient")


def test_a_scraper_and_the_listeners_verify_each_other(site: NodeRoot) -> None:
    """By the commands of docs/observability.md, and a bundle."""
    steps = guide.read("docs/observability.md", "operate", ("scraper",))["scraper"]
    (site.directory / "authorities").symlink_to(site.ca)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    subprocess.run(
        ["sh", "-ec", steps], cwd=site.directory, env={"PATH": path}, check=True, capture_output=True
    )
    out = site.directory / "bundle"
    trusted = ("--super-ca", site.super_ca, "--kubelet-ca", site.kubelet_ca, "--ca-directory", site.ca)
    assert site.run("bundle", "--out", out, *NODE, "--scraper", "prometheus", *trusted)[0] == 0
    code, _, err = site.run("node", "--root", site.root, "--bundle", out)
    assert (code, err) == (0, "")
    scraper = site.directory / "prometheus"
    for daemon in ("vn-agent", "kata-bridge", "kubeproxy-ext", "dnsconfig"):
        configured = yaml.safe_load((site.root / f"etc/vcnode/{daemon}.yaml").read_text())["metrics"]
        assert configured["clientNames"] == ["prometheus"]
        certificate, key, authority = (
            site.root / configured[each].removeprefix("/")
            for each in ("certificateFile", "keyFile", "clientCAFile")
        )
        server = contexts.server_context(certificate, key, [_der(authority)])
        client = ssl.create_default_context(cafile=str(scraper / "ca.crt"))
        client.load_cert_chain(scraper / "tls.crt", scraper / "tls.key")
        assert common_name_of_client(server, client, "node-7") == "prometheus"
    verify(site.ca / "metrics-ca.crt", scraper / "tls.crt", "sslclient")
    assert site.run("scraper", "prometheus", "--out", scraper, "--ca-directory", site.ca)[1] == (
        "nothing to do: 3 files are as they should be\n"
    )


def test_the_authority_of_scrapers_stays(site: NodeRoot) -> None:
    other = Authority.create("other").write(site.directory, "other")
    assert site.run("ca", site.ca, "--only", "metrics")[0] == 0
    trusted = site.root / PKI / "scrapers-ca.crt"
    site.init("--scraper", "prometheus", "--scraper-ca", other)
    site.init()
    assert _der(trusted) == _der(other)
    out = site.directory / "bundle"
    options = ("--super-ca", site.super_ca, "--kubelet-ca", site.kubelet_ca, "--ca-directory", site.ca)
    for more in (("--scraper-ca", other), ()):
        assert site.run("bundle", "--out", out, *NODE, "--scraper", "prometheus", *options, *more)[0] == 0
        assert _der(out / "scrapers-ca.crt") == _der(other)


def test_listeners_cannot_pass_for_vn_agent(site: NodeRoot) -> None:
    shared = ("--metrics-ca", site.ca / "serving-ca.crt", "--metrics-ca-key", site.ca / "serving-ca.key")
    code, _, err = site.node("--ca-directory", site.ca, "--scraper", "prometheus", *shared)
    assert code == 3
    assert "listeners of metrics could pass for vn-agent" in err
    assert site.files() == {}


def test_each_authoritys_key_is_noted(site: NodeRoot) -> None:
    assert site.run("ca", site.ca, "--only", "metrics")[0] == 0
    site.init()
    own = ("--metrics-ca", site.ca / "metrics-ca.crt", "--metrics-ca-key", site.ca / "metrics-ca.key")
    code, out, _ = site.node("--scraper", "prometheus", *own)
    assert code == 0
    assert "Keys of authorities were read here." in out


def test_a_scrapers_own_directory_keeps_its_mode_and_trust(site: NodeRoot) -> None:
    assert site.run("ca", site.ca, "--only", "metrics")[0] == 0
    out = site.directory / "prometheus"
    out.mkdir(0o755)
    (out / "ca.crt").write_text("another one")
    words = ("scraper", "prometheus", "--out", out, "--ca-directory", site.ca)
    assert "ca.crt is of another authority" in site.run(*words)[2]
    assert sorted(out.iterdir()) == [out / "ca.crt"]
    assert site.run(*words, "--renew")[0] == 0
    assert out.stat().st_mode & 0o777 == 0o755


def test_a_package_that_comes_later_is_configured(site: NodeRoot) -> None:
    (site.root / "usr/bin/dnsconfig").unlink()
    site.init()
    (site.root / "usr/bin/dnsconfig").touch()
    site.init()
    assert "dnsconfig.yaml" in site.files()


def test_a_scraper_needs_a_name_and_an_authority(site: NodeRoot) -> None:
    out = site.directory / "prometheus"
    assert site.run("scraper", "", "--out", out, "--ca-directory", site.ca)[0] == 3
    assert (
        "metrics-ca.crt: no such file" in site.run("scraper", "a", "--out", out, "--ca-directory", site.ca)[2]
    )
    assert "give --metrics-ca with --metrics-ca-key" in site.run("scraper", "a", "--out", out)[2]
    assert not out.exists()


def _der(authority: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(authority.read_text())


def test_a_bundle_that_others_can_write_is_refused(site: NodeRoot) -> None:
    bundle = site.directory / "bundle"
    bundle.mkdir()
    bundle.chmod(0o777)
    code, _, err = site.run("node", "--root", site.root, "--bundle", bundle)
    assert code == 3
    assert "users other than its owner can write to it" in err


def test_a_link_in_a_daemons_directory_is_not_followed(site: NodeRoot) -> None:
    """dnsconfig may write its directory, and init runs as root."""
    target = site.directory / "shadow"
    target.write_text("untouched")
    site.init()
    key = site.root / PKI / "dnsconfig/client.key"
    key.unlink()
    key.symlink_to(target)
    code, _, err = site.node("--ca-directory", site.ca)
    assert code == 3
    assert "client.key: Too many levels of symbolic links" in err
    assert target.read_text() == "untouched"


def test_a_link_for_a_daemons_directory_is_refused(site: NodeRoot) -> None:
    elsewhere = site.directory / "elsewhere"
    elsewhere.mkdir()
    (site.root / PKI).mkdir(parents=True)
    (site.root / PKI / "dnsconfig").symlink_to(elsewhere)
    code, _, err = site.node("--ca-directory", site.ca)
    assert code == 3
    assert "pki/dnsconfig: not a directory" in err
    assert list(elsewhere.iterdir()) == []


def test_a_user_that_is_missing_is_named(site: NodeRoot) -> None:
    (site.root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    code, _, err = site.node("--ca-directory", site.ca)
    assert code == 3
    assert "has no user vn-agent: install the package of vn-agent" in err


def test_what_is_missing_is_asked_for(site: NodeRoot) -> None:
    assert "missing: --address" in site.run("node", "--root", site.root, "--node-name", "a")[2]
    code, _, err = site.node("--client-ca", site.ca / "client-ca.crt")
    assert (code, err) == (3, "vcnode: give --client-ca with --client-ca-key\n")
    code, _, err = site.node()
    assert "give --client-ca with --client-ca-key, --kubelet-client-ca with" in err
    code, _, err = site.run("node", "--root", site.root, *NODE, "--ca-directory", site.ca)
    assert (code, err) == (3, "vcnode: missing: --super-ca\n")


def test_a_key_of_another_authority_is_refused(site: NodeRoot) -> None:
    other = site.directory / "other"
    site.run("ca", other)
    code, _, err = site.node(
        "--ca-directory",
        site.ca,
        "--client-ca",
        site.ca / "client-ca.crt",
        "--client-ca-key",
        other / "client-ca.key",
    )
    assert code == 3
    assert "client-ca.crt: the key is not that of the certificate" in err
    assert "PRIVATE" not in err


def test_authorities_stay(site: NodeRoot) -> None:
    before = {path.name: path.read_bytes() for path in site.ca.iterdir()}
    code, out, _ = site.run("ca", site.ca)
    assert code == 0
    assert out.count("unchanged") == 2
    assert {path.name: path.read_bytes() for path in site.ca.iterdir()} == before
    assert (site.ca / "client-ca.key").stat().st_mode & 0o777 == 0o600
    (site.ca / "client-ca.crt").unlink()
    code, _, err = site.run("ca", site.ca)
    assert code == 3
    assert "client-ca.key is there without its other half" in err


def test_a_long_node_name_gets_its_user(site: NodeRoot) -> None:
    """RFC 5280 has 64 characters for a common name; verifiers do not hold to it."""
    name = "ip-192-168-100-100.ap-southeast-2.compute.internal"
    site.init("--node-name", name)
    certificate = site.root / PKI / "kubeproxy-ext/client.crt"
    verify(site.ca / "client-ca.crt", certificate, "sslclient")
    argv = ["openssl", "x509", "-noout", "-subject", "-in", str(certificate)]
    assert (
        f"vcnode:kubeproxy-ext:{name}"
        in subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    )
    assert site.init("--node-name", name).startswith("nothing to do")


def test_an_intermediate_is_in_the_certificates_file(site: NodeRoot) -> None:
    """A tenant's apiserver may trust the root alone."""
    for name, subject, more in (
        ("root", "/CN=root", []),
        ("middle", "/CN=middle", ["-CA", "root.crt", "-CAkey", "root.key"]),
    ):
        argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-days", "100"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-addext", "keyUsage=critical,keyCertSign"]
        subprocess.run([*argv, *files, *more], check=True, capture_output=True, cwd=site.directory)
    middle = site.directory / "middle.crt"
    site.init("--serving-ca", middle, "--serving-ca-key", site.directory / "middle.key")
    certificate = site.root / PKI / "vn-agent/serving.crt"
    assert certificate.read_text().count("BEGIN CERTIFICATE") == 2
    verify(site.directory / "root.crt", certificate, "sslserver", "-untrusted", str(certificate))


def test_cert_manager_gets_one_object_for_each(site: NodeRoot) -> None:
    code, out, _ = site.run(
        "certificates", *NODE[:4], "--client-issuer", "clients", "--serving-issuer", "serving"
    )
    assert code == 0
    assert out.count("kind: Certificate\n") == 5
    code, _, err = site.run("certificates", *NODE[:4], "--client-issuer", "clients")
    assert (code, err) == (3, "vcnode: missing: --serving-issuer\n")


def test_only_init_loads_cryptography() -> None:
    """The verb's command line is part of each run of vcnode."""
    assert init_authority.__name__ not in _imported_by("import vcnode.init")


def _imported_by(code: str) -> set[str]:
    argv = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    return set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())


def test_all_daemons_have_a_configuration(site: NodeRoot) -> None:
    users = (site.root / "etc/passwd").read_text()
    (site.root / "etc/passwd").write_text(
        users + "".join(users.replace("dnsconfig", name) for name in ("vc-syncer", "vc-operator"))
    )
    site.init("--daemons", ",".join(daemon.value for daemon in NodeDaemon))
    for daemon in NodeDaemon:
        assert init_plan.is_as_written((site.root / f"etc/vcnode/{daemon.value}.yaml").read_text())


OPERATOR = ("--daemons", "vc-operator")


def test_the_operator_has_the_authority_of_vn_agents(operator_site: NodeRoot) -> None:
    """Its configuration names the file, without which it does not start."""
    site = operator_site
    site.init(*OPERATOR)
    assert site.files()["pki/vn-agent-ca.crt"] == (site.ca / "serving-ca.crt").read_bytes()
    assert b"servingCaFile: /etc/vcnode/pki/vn-agent-ca.crt" in site.files()["vc-operator.yaml"]


def test_the_authority_of_vn_agents_needs_no_key(operator_site: NodeRoot) -> None:
    """Where vc-operator runs, nothing is issued by it."""
    site = operator_site
    client = ("--client-ca", site.ca / "client-ca.crt", "--client-ca-key", site.ca / "client-ca.key")
    code, _, err = site.node(*OPERATOR, *client)
    assert (code, err) == (3, "vcnode: missing: --serving-ca\n")
    assert site.files() == {}
    assert site.node(*OPERATOR, *client, "--serving-ca", site.ca / "serving-ca.crt")[0] == 0
    assert site.files()["pki/vn-agent-ca.crt"] == (site.ca / "serving-ca.crt").read_bytes()
    assert site.node(*OPERATOR, *client)[0] == 0  # what is there stays


def test_a_bundle_of_the_operator_has_the_authority(operator_site: NodeRoot, tmp_path: Path) -> None:
    site = operator_site
    bundle = tmp_path / "bundle"
    trusted = ("--super-ca", site.super_ca, "--ca-directory", site.ca)
    assert site.run("bundle", "--out", bundle, *NODE, *OPERATOR, *trusted)[0] == 0
    assert (bundle / "vn-agent-ca.crt").read_bytes() == (site.ca / "serving-ca.crt").read_bytes()
    code, _, err = site.run("node", "--root", site.root, *OPERATOR, "--bundle", bundle)
    assert (code, err) == (0, "")
    assert site.files()["pki/vn-agent-ca.crt"] == (site.ca / "serving-ca.crt").read_bytes()


@pytest.fixture
def operator_site(site: NodeRoot) -> NodeRoot:
    passwd = site.root / "etc/passwd"
    passwd.write_text(f"{passwd.read_text()}vc-operator:x:{os.geteuid()}:{os.getegid()}::/:/bin/false\n")
    return site
