# SPDX-License-Identifier: Apache-2.0
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemonkit.config.binding import MAX_FILE_BYTES, ConfigError, load, parse, setting


class SourceKind(enum.Enum):
    KUBELET = "kubelet"
    SUPER_CLUSTER = "superCluster"


@dataclass(frozen=True, slots=True)
class Kubelet:
    ca_file: Path
    address: str = "127.0.0.1"
    port: int = setting(10250, minimum=0, maximum=65535, doc="TCP port")
    password: str = setting("", is_secret=True, choices=("a", "b", ""))


@dataclass(frozen=True, slots=True)
class Tenants:
    directory: Path | None = None
    kubeconfig_file: Path | None = None

    def problems(self) -> Iterator[str]:
        if (self.directory is None) == (self.kubeconfig_file is None):
            yield "exactly one of directory, kubeconfigFile is needed"


@dataclass(frozen=True, slots=True)
class ClientEntry:
    spki_sha256: str = setting(key="spkiSHA256", minimum_length=1)
    role: str = setting("apiserver", choices=("apiserver", "metrics"))


@dataclass(frozen=True, slots=True)
class Agent:
    node_name: str
    kubelet: Kubelet
    tenants: Tenants = Tenants()
    source: SourceKind = SourceKind.KUBELET
    max_age_s: float = setting(0.0, minimum=0)
    burst: int = setting(10, minimum=1)
    ratio: float = setting(0.5, maximum=1)
    is_quick: bool = False
    injected_containers: tuple[str, ...] = ()
    ports: tuple[int, ...] = setting((), minimum=1, maximum=65535)
    clients: tuple[ClientEntry, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    cluster_domain: str | None = None

    def problems(self) -> Iterator[str]:
        if self.kubelet.port == self.burst:
            yield "kubelet.port: must differ from burst"
            yield "burst: must differ from kubelet.port"


HEAD = "apiVersion: vcnode.io/v1alpha1\nkind: Agent\n"
LEAST = HEAD + "nodeName: n1\nkubelet: {caFile: ca.crt}\ntenants: {directory: /t}\n"


def parsed(text: str) -> Agent:
    return parse(text.encode(), Agent, kind="Agent", source="agent.yaml", directory=Path("/etc/vcnode"))


def errors(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return caught.value.errors


def test_required_fields_are_enough() -> None:
    assert parsed(LEAST) == Agent("n1", Kubelet(Path("/etc/vcnode/ca.crt")), Tenants(Path("/t")))


def test_values_of_every_type_are_bound() -> None:
    text = """
apiVersion: vcnode.io/v1alpha1
kind: Agent
nodeName: n1
kubelet: {caFile: /ca.crt, address: "::1", port: 0, password: b}
tenants: {kubeconfigFile: k.conf, directory: null}
source: superCluster
maxAgeS: 3
burst: 7
ratio: 0.25
isQuick: true
injectedContainers: [istio-proxy, vault]
ports: [1, 65535]
clients: [{spkiSHA256: "00ff"}, {spkiSHA256: ab, role: metrics}]
labels: {a.b/c: d}
clusterDomain: cluster.local
"""
    agent = parsed(text)
    assert agent == Agent(
        node_name="n1",
        kubelet=Kubelet(Path("/ca.crt"), "::1", 0, "b"),
        tenants=Tenants(None, Path("/etc/vcnode/k.conf")),
        source=SourceKind.SUPER_CLUSTER,
        max_age_s=3.0,
        burst=7,
        ratio=0.25,
        is_quick=True,
        injected_containers=("istio-proxy", "vault"),
        ports=(1, 65535),
        clients=(ClientEntry("00ff"), ClientEntry("ab", "metrics")),
        labels={"a.b/c": "d"},
        cluster_domain="cluster.local",
    )
    assert type(agent.max_age_s) is float


def test_all_errors_are_listed_with_their_paths() -> None:
    text = """
apiVersion: v1
kind: Agent
kubelet: {port: x, adress: 10.0.0.1, password: hunter2, caFile: ""}
tenants: {directory: a, kubeconfigFile: b}
source: kublet
maxAgeS: -1
burst: 0.5
ratio: 1.5
isQuick: yes
injectedContainers: [1, null, ok]
ports: [0, 80, 65536]
clients: [{role: admin}, x]
labels: {a: 1}
nodename: n1
"""
    assert errors(text) == (
        "apiVersion: expected 'vcnode.io/v1alpha1', got 'v1'",
        "nodeName: required",
        "kubelet.caFile: expected a file path, got ''",
        "kubelet.port: expected an integer between 0 and 65535, got 'x'",
        "kubelet.password: expected one of a, b, '', got a value that is not shown",
        "kubelet.adress: unknown key; did you mean 'address'?",
        "tenants: exactly one of directory, kubeconfigFile is needed",
        "source: expected one of kubelet, superCluster, got 'kublet'",
        "maxAgeS: expected a number of at least 0, got -1",
        "burst: expected an integer of at least 1, got 0.5",
        "ratio: expected a number of at most 1, got 1.5",
        "isQuick: expected true or false, got 'yes'",
        "injectedContainers[0]: expected a string, got 1; put it in quotes",
        "injectedContainers[1]: expected a string, got null",
        "ports[0]: expected an integer between 1 and 65535, got 0",
        "ports[2]: expected an integer between 1 and 65535, got 65536",
        "clients[0].spkiSHA256: required",
        "clients[0].role: expected one of apiserver, metrics, got 'admin'",
        "clients[1]: expected a mapping, got 'x'",
        "labels.a: expected a string, got 1; put it in quotes",
        "nodename: unknown key; did you mean 'nodeName'?",
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("kubelet: null", "kubelet: expected a mapping, got null"),
        ("burst: true", "burst: expected an integer of at least 1, got true"),
        ("burst: null", "burst: expected an integer of at least 1, got null"),
        ("maxAgeS: 1e999", "maxAgeS: expected a number of at least 0, got inf"),
        ("ports: 80", "ports: expected a list, got 80"),
        ("labels: []", "labels: expected a mapping, got a list"),
        ("source: 1", "source: expected one of kubelet, superCluster, got 1"),
        ('clients: [{spkiSHA256: ""}]', "clients[0].spkiSHA256: expected a string that is not empty, got ''"),
        ("nodeName: {a: b}", "nodeName: expected a string, got a mapping"),
        ("kubelet: {caFile: 7}", "kubelet.caFile: expected a file path, got 7; put it in quotes"),
        ('kubelet: {caFile: "a\\0b"}', "kubelet.caFile: expected a file path, got a text of 3 characters"),
        ("kubelet: {caFile: c, port: 10}", "kubelet.port: must differ from burst"),
        ("? 'a b'\n: 1", "'a b': unknown key"),
    ],
)
def test_each_error_names_what_is_expected(change: str, error: str) -> None:
    key = change.partition(":")[0]
    rest = [line for line in LEAST.splitlines() if not line.startswith(f"{key}:")]
    assert errors("\n".join([*rest, change]))[0] == error


def test_problems_runs_where_other_fields_are_wrong() -> None:
    text = LEAST.replace("{directory: /t}", "{}").replace("ca.crt", "ca.crt, port: 10, adress: x")
    assert errors(text + "kubelet2: 1\nmaxAgeS: -1\nratio: 2\n") == (
        "kubelet.adress: unknown key; did you mean 'address'?",
        "tenants: exactly one of directory, kubeconfigFile is needed",
        "maxAgeS: expected a number of at least 0, got -1",
        "ratio: expected a number of at most 1, got 2",
        "kubelet2: unknown key; did you mean 'kubelet'?",
        "kubelet.port: must differ from burst",
        "burst: must differ from kubelet.port",
    )


def test_a_guess_for_a_wrong_value_causes_no_error() -> None:
    # Whether it would differ from the other, and whether there is exactly one, is not known.
    assert errors(
        LEAST.replace("ca.crt", "ca.crt, port: x").replace("{directory: /t}", "{directory: 7}")
    ) == (
        "kubelet.port: expected an integer between 0 and 65535, got 'x'",
        "tenants.directory: expected a file path, got 7; put it in quotes",
    )
    assert errors(LEAST.replace("ca.crt", "ca.crt, port: 10") + "burst: x\n") == (
        "burst: expected an integer of at least 1, got 'x'",
    )
    assert errors(HEAD + "nodeName: n1\ntenants: {}\n") == (
        "kubelet: required",
        "tenants: exactly one of directory, kubeconfigFile is needed",
    )


def test_paths_do_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.yaml").write_text(LEAST)
    monkeypatch.chdir(tmp_path)
    assert load(Path("agent.yaml"), Agent, kind="Agent").kubelet.ca_file == tmp_path / "ca.crt"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("expected a mapping, got null",)),
        ("- a", ("expected a mapping, got a list",)),
        (HEAD + HEAD, ("line 3, column 1: the key 'apiVersion' is there twice",)),
        (
            "kind: Agent\nnodeName: n\nkubelet: {caFile: c}\ntenants: {directory: d}",
            ("apiVersion: required; expected 'vcnode.io/v1alpha1'",),
        ),
        # The file of another daemon is one mistake, not thirty unknown keys.
        ("apiVersion: vcnode.io/v1alpha1\nkind: Other\na: 1", ("kind: expected 'Agent', got 'Other'",)),
    ],
)
def test_other_documents_are_refused(text: str, found: tuple[str, ...]) -> None:
    assert errors(text) == found


def test_errors_show_no_secret_and_no_long_text() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\\nMIIEsecret\\n-----END PRIVATE KEY-----"
    text = f'{LEAST}isQuick: "{pem}"\nburst: "{"s3cret" * 20}"\n'
    assert errors(text) == (
        "burst: expected an integer of at least 1, got a text of 120 characters",
        "isQuick: expected true or false, got a text of 64 characters",
    )


def test_every_line_of_the_error_names_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(HEAD)
    assert str(caught.value) == "agent.yaml: nodeName: required\nagent.yaml: kubelet: required"


def test_bytes_that_are_not_utf_8_are_an_error() -> None:
    for data, error in (
        (b"\xff", "not UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than 1048576 bytes"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse(data, Agent, kind="Agent", source="agent.yaml")
        assert caught.value.errors == (error,)


def test_without_a_directory_relative_paths_stay_relative() -> None:
    agent = parse(LEAST.encode(), Agent, kind="Agent", source="-")
    assert agent.kubelet.ca_file == Path("ca.crt")


def test_load_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    with pytest.raises(ConfigError) as caught:
        load(path, Agent, kind="Agent")
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"
    path.write_text(LEAST)
    assert load(path, Agent, kind="Agent").kubelet.ca_file == tmp_path / "ca.crt"
