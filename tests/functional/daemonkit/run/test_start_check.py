# SPDX-License-Identifier: Apache-2.0
"""`--check-config` of every daemon: planted faults in the files that its configuration names.

It reported `ok` for a missing kubeconfig, for a credential plugin and for a missing resolv.conf.
"""

import datetime as dt
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from devkit.pki import Authority
from tests.cases.agent_files import NODE
from tests.functional.healthy_node import DAEMONS, DAY, HealthyNode, is_root, listening

ROOT = Path(__file__).resolve().parents[4]
NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def node(short_dir: Path) -> Iterator[HealthyNode]:
    node = HealthyNode(short_dir)
    node.write()
    with listening(short_dir / "run" / "bridge.sock", short_dir / "run" / "nri.sock"):
        yield node


@pytest.fixture
def short_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path that fits into the address of a unix socket."""
    return tmp_path_factory.mktemp("n")


def check(node: HealthyNode, daemon: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Exit code, and the lines with the configuration's name and the directory taken off."""
    main = importlib.import_module(f"{DAEMONS[daemon]}.__main__").main
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(["--config", str(node.config(daemon)), "--check-config"])
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(f"{node.config(daemon)}: ") for line in lines), lines
    assert isinstance(caught.value.code, int)
    texts = [
        line.removeprefix(f"{node.config(daemon)}: ").replace(str(node.directory), "DIR") for line in lines
    ]
    return caught.value.code, texts


@dataclass(frozen=True)
class PlantedFault:
    """`plant` breaks a healthy node; `line` is what the daemon's check prints then."""

    daemon: str
    plant: Callable[[HealthyNode], object]
    line: str


def expired(node: HealthyNode) -> None:
    leaf = node.super_authority.issue("d", not_before=NOW - 3 * DAY, not_after=NOW - DAY)
    node.write_kubeconfig(node.kubeconfig("dnsconfig"), leaf)


def future(node: HealthyNode) -> None:
    leaf = node.serving.issue(NODE, sans_dns=[NODE], not_before=NOW + DAY, not_after=NOW + 30 * DAY)
    leaf.write(node.directory, "serving")


def other_key(node: HealthyNode) -> None:
    key = node.serving.issue("other").key_pem
    (node.directory / "serving.key").write_bytes(key)


def other_kubeconfig_key(node: HealthyNode) -> None:
    leaf, other = (node.super_authority.issue(name) for name in ("a", "b"))
    leaf.write(node.directory, "a")
    other.write(node.directory, "b")
    files = {"client-certificate": str(node.directory / "a.crt"), "client-key": str(node.directory / "b.key")}
    node.write_kubeconfig(node.kubeconfig("kubeproxy-ext"), None, user=files)


def leaf_as_authority(node: HealthyNode) -> None:
    (node.directory / "kubelet-ca.crt").write_bytes(node.serving.issue("leaf").cert_pem)


def no_context(node: HealthyNode) -> None:
    path = node.kubeconfig("dnsconfig")
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"current-context": "gone"}))


def half_a_state(node: HealthyNode) -> None:
    state = node.directory / "state" / "kata-bridge"
    state.mkdir(mode=0o700)
    leaf = Authority.create("kata-bridge").issue("x")
    (state / "ca.crt").write_bytes(leaf.cert_pem)
    (state / "ca.key").write_bytes(node.serving.issue("other").key_pem)


def damaged_state(node: HealthyNode) -> None:
    state = node.directory / "state" / "webhook"
    state.mkdir(mode=0o700)
    (state / "authorities.pem").write_text("-----BEGIN CERTIFICATE-----\nrubbish\n")


def opened_state(node: HealthyNode) -> None:
    state = node.directory / "state" / "dnsconfig"
    state.mkdir()
    state.chmod(0o777)


def spiffe(node: HealthyNode) -> None:
    authority = {"caFile": str(node.directory / "spiffe.crt"), "trustDomain": "super.example"}
    node.write_config("vn-agent", spiffe=authority)


def pods_file(node: HealthyNode) -> None:
    (node.directory / "pods.json").write_text("{}")
    node.write_config("vn-agent", pods={"source": "file", "file": str(node.directory / "pods.json")})


def scrapers_without_authority(daemon: str) -> Callable[[HealthyNode], object]:
    def plant(node: HealthyNode) -> None:
        certificate, key = node.serving.issue(NODE).write(node.directory, "metrics")
        node.write_config(
            daemon,
            metrics={
                "address": "192.0.2.1",
                "port": 10551,
                "certificateFile": str(certificate),
                "keyFile": str(key),
                "clientCAFile": str(node.directory / "scrapers.crt"),
                "clientNames": ["prometheus"],
            },
        )

    return plant


def scrapers_of_a_leaf(node: HealthyNode) -> None:
    scrapers_without_authority("vn-agent")(node)
    (node.directory / "scrapers.crt").write_bytes(node.serving.issue("leaf").cert_pem)


def put(name: str, text: str) -> Callable[[HealthyNode], object]:
    return lambda node: (node.directory / name).write_text(text)


def remove(name: str) -> Callable[[HealthyNode], object]:
    return lambda node: (node.directory / name).unlink()


def exec_plugin(daemon: str) -> Callable[[HealthyNode], object]:
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}
    return lambda node: node.write_kubeconfig(node.kubeconfig(daemon), None, user=plugin)


CREATE = "create it, or correct the path in the configuration"
REWRITE = "correct it, or write a new one for this daemon"
EXEC = "exec: credential plugins are not run by a daemon; use a certificate or a token file; " + REWRITE
RESOLVER = "repair it, or name the file of the kubelet's resolvConf"
SUPER = "superCluster.kubeconfigFile: DIR/"
MISSING = "No such file or directory; " + CREATE
YESTERDAY, TOMORROW, SOON = (f"{NOW + days * DAY:%Y-%m-%d}" for days in (-1, 1, 3))

FAULTS = {
    # ---- kubeconfigs
    "kubeproxy-ext without kubeconfig": PlantedFault(
        "kubeproxy-ext", remove("kubeproxy-ext.kubeconfig"), f"{SUPER}kubeproxy-ext.kubeconfig: {MISSING}"
    ),
    "dnsconfig without kubeconfig": PlantedFault(
        "dnsconfig", remove("dnsconfig.kubeconfig"), f"{SUPER}dnsconfig.kubeconfig: {MISSING}"
    ),
    "webhook without kubeconfig": PlantedFault(
        "dnsconfig-webhook",
        remove("dnsconfig-webhook.kubeconfig"),
        f"{SUPER}dnsconfig-webhook.kubeconfig: {MISSING}",
    ),
    "gate without kubeconfig": PlantedFault(
        "kata-bridge", remove("kata-bridge.kubeconfig"), f"gate.{SUPER}kata-bridge.kubeconfig: {MISSING}"
    ),
    "syncer without kubeconfig": PlantedFault(
        "vc-syncer", remove("vc-syncer.kubeconfig"), f"{SUPER}vc-syncer.kubeconfig: {MISSING}"
    ),
    "exec plugin in kubeproxy-ext": PlantedFault(
        "kubeproxy-ext", exec_plugin("kubeproxy-ext"), f"{SUPER}kubeproxy-ext.kubeconfig: {EXEC}"
    ),
    "exec plugin in dnsconfig": PlantedFault(
        "dnsconfig", exec_plugin("dnsconfig"), f"{SUPER}dnsconfig.kubeconfig: {EXEC}"
    ),
    "exec plugin in the gate": PlantedFault(
        "kata-bridge", exec_plugin("kata-bridge"), f"gate.{SUPER}kata-bridge.kubeconfig: {EXEC}"
    ),
    "kubeconfig that is no YAML": PlantedFault(
        "kubeproxy-ext",
        put("kubeproxy-ext.kubeconfig", "clusters: [\n"),
        f"{SUPER}kubeproxy-ext.kubeconfig: not YAML at line 2; {REWRITE}",
    ),
    "kubeconfig without its context": PlantedFault(
        "dnsconfig",
        no_context,
        f"{SUPER}dnsconfig.kubeconfig: current-context 'gone' is not among contexts; {REWRITE}",
    ),
    "kubeconfig with a damaged certificate": PlantedFault(
        "dnsconfig",
        lambda node: node.edit_kubeconfig("dnsconfig", "user", **{"client-certificate-data": "?"}),
        f"{SUPER}dnsconfig.kubeconfig: client-certificate-data is not base64; {REWRITE}",
    ),
    "kubeconfig with a missing certificate": PlantedFault(
        "dnsconfig",
        lambda node: node.write_kubeconfig(
            node.kubeconfig("dnsconfig"),
            None,
            user={"client-certificate": "gone.crt", "client-key": "gone.key"},
        ),
        f"{SUPER}dnsconfig.kubeconfig: DIR/gone.crt: No such file or directory; {REWRITE}",
    ),
    "kubeconfig with another key": PlantedFault(
        "kubeproxy-ext",
        other_kubeconfig_key,
        f"{SUPER}kubeproxy-ext.kubeconfig: the client key is not the key of the client certificate;"
        f" {REWRITE}",
    ),
    "kubeconfig with an expired certificate": PlantedFault(
        "dnsconfig",
        expired,
        f"{SUPER}dnsconfig.kubeconfig: the client certificate expired on {YESTERDAY}; renew the certificate",
    ),
    "kubeconfig with a missing authority": PlantedFault(
        "kubeproxy-ext",
        lambda node: node.edit_kubeconfig(
            "kubeproxy-ext",
            "cluster",
            **{"certificate-authority-data": "", "certificate-authority": "/nowhere/ca.crt"},
        ),
        f"{SUPER}kubeproxy-ext.kubeconfig: /nowhere/ca.crt: No such file or directory; {REWRITE}",
    ),
    "kubeconfig with a damaged authority": PlantedFault(
        "dnsconfig",
        lambda node: node.edit_kubeconfig("dnsconfig", "cluster", **{"certificate-authority-data": "QUJD"}),
        f"{SUPER}dnsconfig.kubeconfig: certificate-authority-data: not PEM certificates of an authority;"
        f" {REWRITE}",
    ),
    "kubeconfig that is a directory": PlantedFault(
        "dnsconfig",
        lambda node: node.write_config("dnsconfig", superCluster={"kubeconfigFile": str(node.directory)}),
        "superCluster.kubeconfigFile: DIR: not a regular file; name a file",
    ),
    # ---- resolv.conf
    "missing resolv.conf": PlantedFault(
        "dnsconfig", remove("resolv.conf"), f"resolvConf: DIR/resolv.conf: it does not exist; {RESOLVER}"
    ),
    "resolv.conf without a server": PlantedFault(
        "dnsconfig",
        put("resolv.conf", "search example.org\n"),
        "resolvConf: DIR/resolv.conf: it has no nameserver; pods of policy Default resolve no names;"
        f" {RESOLVER}",
    ),
    "resolv.conf with half a line": PlantedFault(
        "dnsconfig-webhook",
        put("resolv.conf", "nameserver\n"),
        f"resolvConf: DIR/resolv.conf: a line `nameserver` without an address; {RESOLVER}",
    ),
    "resolv.conf that is too large": PlantedFault(
        "dnsconfig",
        put("resolv.conf", "#" * ((1 << 20) + 1)),
        f"resolvConf: DIR/resolv.conf: larger than 1048576 bytes; {RESOLVER}",
    ),
    # ---- vn-agent's certificates
    "missing serving certificate": PlantedFault(
        "vn-agent", remove("serving.crt"), f"serving.certificateFile: DIR/serving.crt: {MISSING}"
    ),
    "serving key of another certificate": PlantedFault(
        "vn-agent",
        other_key,
        "serving.keyFile: DIR/serving.key: not the key of DIR/serving.crt; write both at once",
    ),
    "serving certificate of the future": PlantedFault(
        "vn-agent",
        future,
        f"serving.certificateFile: DIR/serving.crt: the certificate is not valid before {TOMORROW};"
        " check the node's clock, else renew the certificate",
    ),
    "kubelet authority that is none": PlantedFault(
        "vn-agent",
        leaf_as_authority,
        "kubelet.caFile: DIR/kubelet-ca.crt: certificate 1 is not an authority (basicConstraints CA is not"
        " true); give the CA that issued it",
    ),
    "missing client key": PlantedFault(
        "vn-agent", remove("agent.key"), f"kubelet.clientKeyFile: DIR/agent.key: {MISSING}"
    ),
    "missing spiffe authority": PlantedFault("vn-agent", spiffe, f"spiffe.caFile: DIR/spiffe.crt: {MISSING}"),
    # ---- directories, sockets, other files
    "missing directory of tenants": PlantedFault(
        "vn-agent",
        lambda node: node.write_config("vn-agent", tenants={"directory": str(node.directory / "gone")}),
        f"tenants.directory: DIR/gone: {MISSING}",
    ),
    "bad file of a tenant": PlantedFault(
        "vn-agent",
        put("tenants/ten-b.yaml", "kind: Tenant\n"),
        "tenants.directory: DIR/tenants/ten-b.yaml: apiVersion: must be vcnode.io/v1alpha1;"
        " metadata: must be a"
        " mapping; metadata.name: must be a string; metadata.name: cluster key '' is not a DNS label"
        " of at most"
        " 63 characters; repair or remove the file; `vcnode tenant list` shows all",
    ),
    "file of pods that has none": PlantedFault(
        "vn-agent",
        pods_file,
        "pods.file: DIR/pods.json: not the JSON document that was expected; write it anew: `kubectl"
        " get pods -A -o json`",
    ),
    "audit log in no directory": PlantedFault(
        "vn-agent",
        lambda node: node.write_config("vn-agent", audit={"file": str(node.directory / "gone" / "a.log")}),
        f"audit.file: DIR/gone/a.log: DIR/gone is not a directory; {CREATE}",
    ),
    "state directory that is a file": PlantedFault(
        "vn-agent",
        lambda node: node.write_config("vn-agent", stateDirectory=str(node.directory / "pods.json")),
        "stateDirectory: DIR/pods.json: not a directory; name a directory",
    ),
    "state directory that others write": PlantedFault(
        "dnsconfig",
        opened_state,
        "stateDirectory: DIR/state/dnsconfig: users other than its owner can write to it (mode 0777);"
        " chmod go-w DIR/state/dnsconfig, and check its content",
    ),
    "bridge socket that is a file": PlantedFault(
        "kubeproxy-ext",
        lambda node: node.write_config(
            "kubeproxy-ext", bridge={"socket": str(node.directory / "resolv.conf")}
        ),
        "bridge.socket: DIR/resolv.conf: not a socket; name the socket of kata-bridge",
    ),
    "unknown group": PlantedFault(
        "kata-bridge",
        lambda node: node.write_config(
            "kata-bridge", listen={"socket": str(node.directory / "b.sock"), "group": "no-such-group"}
        ),
        "listen.group: unknown group 'no-such-group'; create it (groupadd --system), or name another",
    ),
    "missing policy of stock guests": PlantedFault(
        "kata-bridge",
        lambda node: node.write_config("kata-bridge", stock={"policyFile": str(node.directory / "p.rego")}),
        "stock.policyFile: DIR/p.rego: No such file or directory; correct the file or its path",
    ),
    "authority of guests with another key": PlantedFault(
        "kata-bridge",
        half_a_state,
        "stateDirectory: DIR/state/kata-bridge: DIR/state/kata-bridge/ca.key is not the key of"
        " DIR/state/kata-bridge/ca.crt; restore the directory, or remove it: guests then get new"
        " certificates",
    ),
    "bad file of a guest": PlantedFault(
        "kata-bridge",
        put("guests/g.yaml", "kind: Guest\n"),
        "sandboxes.directory: DIR/guests/g.yaml: apiVersion: required; expected 'vcnode.io/v1alpha1';"
        " namespace: required; name: required; repair or remove the file",
    ),
    "damaged state of the webhook": PlantedFault(
        "dnsconfig-webhook",
        damaged_state,
        "stateDirectory: DIR/state/webhook: DIR/state/webhook/authorities.pem: not certificates with"
        " their keys;"
        " move the file away",
    ),
    # ---- scrapers of other machines
    **{
        f"missing authority of scrapers of {daemon}": PlantedFault(
            daemon, scrapers_without_authority(daemon), f"metrics.clientCAFile: DIR/scrapers.crt: {MISSING}"
        )
        for daemon in DAEMONS
    },
    "authority of scrapers that is none": PlantedFault(
        "vn-agent",
        scrapers_of_a_leaf,
        "metrics.clientCAFile: DIR/scrapers.crt: certificate 1 is not an authority"
        " (basicConstraints CA is not true); give the CA that issued it",
    ),
    "missing directory of kubeconfigs": PlantedFault(
        "vc-syncer",
        lambda node: node.write_config("vc-syncer", tenants={"directory": str(node.directory / "gone")}),
        f"tenants.directory: DIR/gone: {MISSING}",
    ),
}

# What works for now: exit code 0.
WARNINGS = {
    "certificate that expires in three days": PlantedFault(
        "vn-agent",
        lambda node: node.agent_clients.issue("a", not_after=NOW + 3 * DAY).write(node.directory, "agent"),
        f"kubelet.clientCertificateFile: DIR/agent.crt: the certificate expires on {SOON}, in less"
        " than 7 days;"
        " renew the certificate",
    ),
    "resolv.conf that leads to the pod itself": PlantedFault(
        "dnsconfig",
        put("resolv.conf", "nameserver 127.0.0.53\n"),
        "resolvConf: DIR/resolv.conf: its nameserver 127.0.0.53 is a loopback address, which in a pod is the"
        " pod itself; name a file with the real servers, as /run/systemd/resolve/resolv.conf, here and in the"
        " kubelet's resolvConf",
    ),
    "resolv.conf whose first server is the pod itself": PlantedFault(
        "dnsconfig",
        put("resolv.conf", "nameserver 127.0.0.53\nnameserver 192.0.2.1\n"),
        "resolvConf: DIR/resolv.conf: its nameserver 127.0.0.53 is a loopback address, which in a pod is the"
        " pod itself; name a file with the real servers, as /run/systemd/resolve/resolv.conf, here and in the"
        " kubelet's resolvConf",
    ),
    "kata-bridge has not started": PlantedFault(
        "kubeproxy-ext",
        remove("run/bridge.sock"),
        "bridge.socket: DIR/run/bridge.sock: No such file or directory; start kata-bridge, or"
        " correct the path",
    ),
    "runtime without NRI": PlantedFault(
        "kata-bridge",
        remove("run/nri.sock"),
        "sandboxes.nri.socket: DIR/run/nri.sock: No such file or directory; start the container runtime, with"
        " NRI enabled, or correct the path",
    ),
    "kubeconfig of a tenant": PlantedFault(
        "vc-syncer",
        put("kubeconfigs/ten-a.kubeconfig", ""),
        "tenants.directory: DIR/kubeconfigs/ten-a.kubeconfig: not a kubeconfig: Expected `object`,"
        " got `null`;"
        f" {REWRITE}",
    ),
}


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_healthy_configuration_is_ok(
    node: HealthyNode, daemon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(node, daemon, capsys) == (0, ["ok"])


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_with_its_remedy(
    node: HealthyNode, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS[name]
    fault.plant(node)
    assert check(node, fault.daemon, capsys) == (2, [fault.line])


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning_leaves_the_check_ok(
    node: HealthyNode, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = WARNINGS[name]
    fault.plant(node)
    assert check(node, fault.daemon, capsys) == (0, [f"warning: {fault.line}", "ok"])


def test_all_problems_come_at_once(node: HealthyNode, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("serving.crt", "serving.key", "kubelet-ca.crt", "agent.crt"):
        (node.directory / name).unlink()
    put("tenants/ten-b.yaml", "kind: Tenant\n")(node)
    code, lines = check(node, "vn-agent", capsys)
    assert (code, [line.partition(":")[0] for line in lines]) == (
        2,
        [
            "serving.certificateFile",
            "serving.keyFile",
            "kubelet.caFile",
            "kubelet.clientCertificateFile",
            "tenants.directory",
        ],
    )


# ---- as a process, and as another user


def ended(node: HealthyNode, daemon: str, *arguments: str) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, "-m", DAEMONS[daemon], "--config", str(node.config(daemon)), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return process.returncode, process.stdout + process.stderr.replace(str(node.directory), "DIR")


@pytest.mark.skipif(not is_root(), reason="needs root: the check becomes another user")
def test_permissions_are_those_of_the_given_user(node: HealthyNode) -> None:
    """Root reads everything, and the daemon's user did not at its start."""
    os.chown(node.directory / "state", 65534, -1)
    os.chown(node.directory / "run", 65534, -1)
    for parent in (node.directory, *node.directory.parents):
        if parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(parent.stat().st_mode | 0o005)
    (node.directory / "run" / "bridge.sock").chmod(0o660)
    node.kubeconfig("dnsconfig").chmod(0o600)
    code, text = ended(node, "dnsconfig", "--check-config", "--user", "nobody")
    assert (code, text.splitlines()) == (
        2,
        [
            "DIR/dnsconfig.yaml: superCluster.kubeconfigFile: DIR/dnsconfig.kubeconfig: Permission"
            " denied; let"
            " uid 65534 read it, by its owner or group, and enter its directories",
            "DIR/dnsconfig.yaml: bridge.socket: DIR/run/bridge.sock: uid 65534 may not connect to it; add its"
            " user to the group that may use kata-bridge",
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--check-config", "--user", "no-such-user"), "--user: unknown user 'no-such-user'"),
        (("--user", "nobody"), "--user goes with --check-config"),
    ],
)
def test_an_unusable_user_is_reported(node: HealthyNode, arguments: tuple[str, ...], text: str) -> None:
    code, output = ended(node, "dnsconfig", *arguments)
    assert (code, text in output) == (2, True), output
