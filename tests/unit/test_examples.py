# SPDX-License-Identifier: Apache-2.0
"""The READMEs show the files of `examples/`, and each daemon accepts its file unchanged."""

import grp
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import dns_webhook.config
import dnsconfig.config
import kata_bridge.config
import kubeproxy_ext.config
import syncer.config
import tenant_operator.config
import vnagent.config
from daemonkit.kube import kubeconfig
from kata_bridge.sandboxes import file_source
from syncer.policy import document as sync_policy_document
from syncer.policy.sync_policy import SyncPolicy
from tenancy import document
from tests import examples, guide
from tests.k8s.ring import shipped

DAEMONS: dict[str, Callable[[Path], Any]] = {
    "vn-agent.yaml": vnagent.config.load,
    "kata-bridge.yaml": kata_bridge.config.load,
    "kubeproxy-ext.yaml": kubeproxy_ext.config.load,
    "dnsconfig.yaml": dnsconfig.config.load,
    "dnsconfig-webhook.yaml": dns_webhook.config.load,
    "vc-syncer.yaml": syncer.config.load,
    "vc-operator.yaml": tenant_operator.config.load,
}


@pytest.mark.parametrize("path", examples.readmes(), ids=lambda path: str(path.relative_to(examples.ROOT)))
def test_readme_shows_examples_as_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert examples.refreshed(text) == text, "run make examples"
    assert not list(examples.unmarked(text)), "a whole object belongs in examples/"


def test_every_example_is_shown_in_a_readme() -> None:
    found = {name for path in examples.readmes() for name in examples.included(path.read_text())}
    assert found == {path.name for path in examples.DIRECTORY.iterdir()}


@pytest.mark.parametrize("name", DAEMONS)
def test_daemon_takes_its_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its paths as they are. The group `vcnode` is made on a node, before this file is used."""
    by_name = grp.getgrnam
    monkeypatch.setattr(grp, "getgrnam", lambda group: by_name("root" if group == "vcnode" else group))
    loaded = DAEMONS[name](examples.DIRECTORY / name)
    assert loaded is not None


def test_webhook_example_equals_its_deployments_file() -> None:
    path = examples.ROOT / "packaging" / "webhook" / "deployment.yaml"
    (shipped,) = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "ConfigMap"]
    assert shipped["data"]["config.yaml"] == examples.shown("dnsconfig-webhook.yaml")


def test_tenant_example_is_a_tenant() -> None:
    value = yaml.safe_load((examples.DIRECTORY / "tenant.yaml").read_text())
    assert document.parse_tenant(value).key == "tenant-1-70b001-test"


def test_sync_policy_example_is_a_policy() -> None:
    value = yaml.safe_load((examples.DIRECTORY / "sync-policy.yaml").read_text())
    found = sync_policy_document.parse(value)
    assert isinstance(found, SyncPolicy)
    assert (found.pods.runtime_class, found.claims.storage_classes) == ("kata", frozenset({"standard"}))


def test_guest_example_is_a_guest() -> None:
    path = examples.DIRECTORY / "guest.yaml"
    found = file_source.parse(path.read_bytes(), path)
    assert (found.tenant, found.tenant_namespace, found.name) == ("vc-a", "shop", "web-0")


def test_kubeconfig_example_names_a_client_certificate() -> None:
    text = (examples.DIRECTORY / "kubeconfig.yaml").read_text().replace("DAEMON", "dnsconfig")
    found = kubeconfig.parse(text, Path("/etc/vcnode"))
    assert found.certificate_file == Path("/etc/vcnode/pki/dnsconfig/client.crt")


@pytest.mark.parametrize(
    ("document", "kind", "steps"),
    [
        ("README.md", "install", guide.STEPS),
        ("README.md", "tenant", guide.TENANT_STEPS),
        ("docs/operate.md", "operate", guide.OPERATE_STEPS),
    ],
)
def test_documents_have_the_steps_that_rings_run(document: str, kind: str, steps: tuple[str, ...]) -> None:
    assert tuple(guide.read(document, kind, steps)) == steps
    with pytest.raises(guide.MissingStepError, match=f"{document} has .* expected .*another"):
        guide.read(document, kind, (*steps, "another"))


def test_a_step_has_other_names_in_one_pass() -> None:
    assert guide.replaced("ask 10.0.0.11 10.0.0.1:1", [("10.0.0.1:", "a:"), ("10.0.0.11", "10.0.0.1:")]) == (
        "ask 10.0.0.1: a:1"
    )
    with pytest.raises(guide.StepError, match="'node-2' is not in the step"):
        guide.replaced("ask node-1", [("node-2", "node-3")])


def test_ring_changes_places_of_an_example_alone() -> None:
    made = shipped.configuration("vn-agent.yaml", {"listen.port": 0})
    shown = yaml.safe_load(examples.shown("vn-agent.yaml"))
    assert made == shown | {"listen": {"address": "10.0.0.11", "port": 0}}
    for refused in ("limits.connectionsPerTenant", "audit", "kubelet"):
        with pytest.raises(shipped.NotShippedError, match=refused):
            shipped.configuration("vn-agent.yaml", {refused: {}})
    with pytest.raises(shipped.NotShippedError, match="audit"):
        shipped.configuration("vn-agent.yaml", {}, without=("audit",))
