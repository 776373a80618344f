# SPDX-License-Identifier: Apache-2.0
"""The plugin under a real kubectl at a real apiserver, with the shipped definitions."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubectl_vc.core.command import WHAT_ROTATES
from kubectl_vc.kubectl import Kubectl
from tests.functional.kubectl_vc.contract import check
from tests.k8s.build import Binaries
from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import SYSTEM_PATH
from tests.k8s.ring.tenants import RingTenant

_ROOT = Path(__file__).resolve().parents[2]
_FILES = ("virtualclusters.yaml", "clusterversions.yaml")
_VERSIONS = f"/apis/{virtual_clusters.GROUP}/clusterversions"
_IMAGES = {
    each: f"registry.example/{each}"
    for each in ("apiServer", "controllerManager", "etcd", "signer", "backup")
}
_TIMEOUT_S = 60.0
ACME = "virtualcluster.tenancy.x-k8s.io/acme"


@dataclass(frozen=True, slots=True)
class Person:
    """Who has kubectl, the plugin and a kubeconfig of the super cluster."""

    api: KubernetesApi
    directory: Path
    environment: dict[str, str]

    def kubectl(self, *words: str, typed: str = "") -> tuple[int, str, str]:
        """Its code, stdout and stderr."""
        done = subprocess.run(
            ["kubectl", *words],
            input=typed,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=self.environment,
            cwd=self.directory,
        )
        return done.returncode, done.stdout, done.stderr

    def annotations(self, name: str) -> dict[str, str]:
        """Of a VirtualCluster of the namespace."""
        found: dict[str, str] = self.api.get(virtual_clusters.path("default", name))["metadata"][
            "annotations"
        ]
        return found

    def set_status(self, name: str, status: JsonObject) -> None:
        """As vc-operator does."""
        self.api.patch(f"{virtual_clusters.path('default', name)}/status", {"status": status})


@pytest.fixture(scope="module")
def person(
    acme: RingTenant, k8s_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Person]:
    """The apiserver serves nothing else. kubectl enters its network first; the plugin finds it in PATH."""
    directory = tmp_path_factory.mktemp("person")
    programs = directory / "bin"
    programs.mkdir()
    enter = " ".join(acme.kubectl.network.enter)
    _script(programs / "kubectl", f'exec {enter} {k8s_binaries["kubectl"]} "$@"')
    main = "import sys; sys.argv[0] = sys.argv.pop(1); from kubectl_vc.__main__ import main; sys.exit(main())"
    for name in ("kubectl-vc", "kubectl_complete-vc"):
        _script(
            programs / name, f'PYTHONPATH={_ROOT} exec {sys.executable} -c "{main}" {programs / name} "$@"'
        )
    path = f"{programs}{os.pathsep}{SYSTEM_PATH}"
    environment = {"PATH": path, "HOME": str(directory), "KUBECONFIG": str(directory / "config"), "TZ": "UTC"}
    for file in _FILES:
        virtual_clusters.install(acme.api, file)
    for name in ("v1-33", "v1-34"):
        spec = {"kubernetesVersion": f"1.{name[-2:]}.4", "etcdVersion": "3.7.3", "images": _IMAGES}
        value = {"apiVersion": virtual_clusters.GROUP, "kind": "ClusterVersion", "spec": spec}
        acme.api.create(_VERSIONS, {**value, "metadata": {"name": name}}, may_exist=True)
    made = Person(acme.api, directory, environment)
    code, config, _ = made.kubectl(
        *(
            "config",
            "view",
            "--raw",
            "--flatten",
            "--output=json",
            f"--kubeconfig={acme.apiserver.kubeconfig}",
        )
    )
    assert code == 0
    (directory / "config").write_text(config)
    try:
        yield made
    finally:
        for file in _FILES:
            virtual_clusters.uninstall(acme.api, file)


@pytest.fixture
def acme_vc(person: Person) -> Iterator[None]:
    code, _, err = person.kubectl("vc", "create", "acme", "--no-wait", "--cluster-version", "v1-34")
    assert code == 0, err
    yield
    person.api.delete(virtual_clusters.path("default", "acme"))


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_kubectl_lists_the_plugin_without_a_warning(person: Person) -> None:
    code, out, err = person.kubectl("plugin", "list")
    assert (code, str(person.directory / "bin/kubectl-vc") in out) == (0, True)
    assert [line for line in err.splitlines() if "kubectl-vc" in line or "overshadow" in line] == []


def test_a_real_kubectl_keeps_the_contract(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", person.environment["PATH"])
    check(Kubectl([], person.environment))


def test_flags_stand_in_all_places(person: Person) -> None:
    name = json.loads((person.directory / "config").read_text())["current-context"]
    places = (
        [
            "--context",
            name,
            "create",
            "--class=large",
            "one",
            "--no-wait",
            "--cluster-version=v1-34",
            "-n",
            "default",
        ],
        [
            "-n=default",
            "create",
            "one",
            f"--context={name}",
            "--cluster-version",
            "v1-34",
            "--wait=false",
            "--class",
            "large",
        ],
    )
    for words in places:
        code, out, err = person.kubectl("vc", *words)
        assert (code, out, err) == (
            0,
            "virtualcluster.tenancy.x-k8s.io/one created in namespace default\n",
            "",
        )
        made = person.api.get(virtual_clusters.path("default", "one"))
        assert made["spec"]["clusterVersionName"] == "v1-34"
        assert made["spec"]["class"] == "large"
        person.api.delete(virtual_clusters.path("default", "one"))
    code, _, err = person.kubectl("--namespace=default", "vc", "get")
    assert (code, "flags cannot be placed before plugin name" in err) == (1, True)


def test_without_a_default_all_versions_are_listed(person: Person) -> None:
    code, out, err = person.kubectl("vc", "create", "one")
    assert (code, out) == (1, "")
    assert "there are: v1-33, v1-34; choose with --cluster-version" in err


def test_the_table_is_of_what_the_operator_writes(person: Person, acme_vc: None) -> None:
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "EtcdPending",
        "message": "etcd has 0 of 1 ready",
    }
    person.set_status("acme", {"phase": "Pending", "observedGeneration": 1, "conditions": [condition]})
    code, out, err = person.kubectl("vc", "get", "acme", "-n", "default")
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split("  ")[0] == "NAME"
    assert row.split()[:4] == ["acme", "Pending", "False", "v1-34"]
    assert row.endswith("Ready False (EtcdPending): etcd has 0 of 1 ready")
    assert person.kubectl("vc", "get", "-A", "-o", "name") == (0, f"{ACME}\n", "")


def test_requests_are_annotations(person: Person, acme_vc: None) -> None:
    for words in (["sleep"], ["wake"], ["backup"]):
        code, _, err = person.kubectl("vc", *words, "acme", "--no-wait")
        assert (code, err) == (0, "")
    assert person.kubectl("vc", "rotate", "acme", "all")[0] == 0
    written = person.annotations("acme")
    assert written["vcnode.io/sleep-requested-at"] < written["vcnode.io/wake-requested-at"]
    assert written["vcnode.io/backup-requested"].startswith("acme-")
    assert {f"vcnode.io/rotate-{what}" for what in WHAT_ROTATES if what != "all"} <= set(written)
    assert person.kubectl("vc", "upgrade", "acme", "v1-33", "--no-wait")[:2] == (
        0,
        f"{ACME} goes from v1-34 to v1-33\n",
    )
    person.set_status(
        "acme", {"phase": "Running", "clusterVersion": "v1-33", "previousClusterVersion": "v1-34"}
    )
    assert person.kubectl("vc", "rollback", "acme", "--no-wait")[:2] == (
        0,
        f"{ACME} goes from v1-33 to v1-34\n",
    )


def test_a_wait_sees_what_the_operator_writes(person: Person, acme_vc: None) -> None:
    ready = {"type": "Ready", "status": "True"}
    person.set_status("acme", {"phase": "Running", "observedGeneration": 1, "conditions": [ready]})
    code, _, err = person.kubectl("vc", "wake", "acme", "--timeout=30s")
    assert (code, err.splitlines()[-1].partition(" after")[0]) == (0, "VirtualCluster default/acme: done")


def test_deletion_asks_and_waits(person: Person) -> None:
    assert person.kubectl("vc", "create", "gone", "--no-wait", "--cluster-version=v1-34")[0] == 0
    code, _, err = person.kubectl("vc", "delete", "gone", typed="other\n")
    assert (code, err.endswith("not confirmed: nothing was changed\n")) == (1, True)
    code, out, err = person.kubectl("vc", "delete", "gone", "--keep-volumes", typed="gone\n")
    assert (code, out) == (0, "virtualcluster.tenancy.x-k8s.io/gone is being deleted\n"), err
    assert "VirtualCluster default/gone: done" in err


def test_kubectl_completes_names_and_verbs(person: Person, acme_vc: None) -> None:
    def candidates(*words: str) -> list[str]:
        code, out, _ = person.kubectl("__complete", "vc", *words)
        assert code == 0
        return out.splitlines()

    assert candidates("ro") == ["rollback", "rotate", ":4"]
    assert candidates("get", "a") == ["acme", ":4"]
    assert candidates("upgrade", "-n", "default", "acme", "") == ["v1-33", "v1-34", ":4"]


def test_the_kubeconfig_asks_by_exec_plugin(person: Person, acme_vc: None) -> None:
    """This apiserver stands for the tenant's own too: the credential is its administrator's."""
    config = (person.directory / "config").read_text()
    data = {"value": base64.b64encode(config.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "acme-kubeconfig"}, "data": data}
    person.api.create("/api/v1/namespaces/default/secrets", secret)
    before = (person.directory / "config").read_bytes()
    try:
        assert person.kubectl("vc", "kubeconfig", "acme", "-o", "acme.yaml")[0] == 0
        written = (person.directory / "acme.yaml").read_text()
        user = json.loads(config)["users"][0]["user"]
        assert user["client-key-data"] not in written
        _, expected, _ = person.kubectl("auth", "whoami", "--output=name")
        code, out, err = person.kubectl("auth", "whoami", "--kubeconfig=acme.yaml", "--output=name")
        assert (code, out) == (0, expected), err
        assert person.kubectl("vc", "kubeconfig", "acme", "--merge")[0] == 0
        _, contexts, _ = person.kubectl("config", "get-contexts", "--output=name")
        (added,) = [each for each in contexts.split() if each.startswith("default/acme@")]
        assert person.kubectl("auth", "whoami", f"--context={added}")[0] == 0
        # Also when it is the current one: the super cluster's context is named in it.
        assert person.kubectl("config", "use-context", added)[0] == 0
        assert person.kubectl("auth", "whoami")[0] == 0
    finally:
        (person.directory / "config").write_bytes(before)
        person.api.delete("/api/v1/namespaces/default/secrets/acme-kubeconfig")
