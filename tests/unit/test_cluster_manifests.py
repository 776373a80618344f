# SPDX-License-Identifier: Apache-2.0
"""Rights, kustomize bases and the Helm chart: each rule and each object is written once.

That the rights are enough is what the k8s and lab_vm rings show, whose daemons have these alone. That an
apiserver takes what kustomize and Helm render is tests/k8s/test_super_cluster_pods.py.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

import dns_webhook.watches
import dnsconfig.watch
import kubeproxy_ext.watch
import vnagent.sources.super_pods
import vnagent.sources.super_tenants
from daemonkit.kube.event_recorder import EVENTS
from daemonkit.kube.resources import Resource
from tests import examples
from vcnode.core.init_plan import NodeDaemon

PACKAGING = examples.ROOT / "packaging"
CHART = PACKAGING / "helm" / "vcnode"
BASES = ("namespace", "crds", "syncer", "operator", "webhook", "webhook-cert-manager", "cluster")
# Files of these directories that no base takes, and why.
LEFT_OUT = {
    "crds/networks-tenant.yaml": "for a tenant's own control plane",
    "crds/virtualclusters.yaml": "one of two, where nothing else installs VirtualClusters",
    "crds/virtualclusters-vc-manager.yaml": "one of two, where nothing else installs VirtualClusters",
    "crds/clusterversions.yaml": "vc-operator's, beside virtualclusters.yaml",
    "syncer/sharding.yaml": "instead of deployment.yaml",
}
# A daemon's file, the modules that list and watch in the super cluster, and its other requests.
OTHER = {
    "rbac/kubeproxy-ext.yaml": ((kubeproxy_ext.watch,), set[tuple[str, str, str]]()),
    "rbac/dnsconfig.yaml": ((dnsconfig.watch,), {(EVENTS.group, EVENTS.plural, "create")}),
    "webhook/rbac.yaml": (
        (dns_webhook.watches,),
        {
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", verb)
            for verb in ("get", "patch")
        },
    ),
    "rbac/options/vn-agent-pods.yaml": ((vnagent.sources.super_pods,), set[tuple[str, str, str]]()),
    "rbac/options/vn-agent-apiserver.yaml": (
        (),
        {
            ("", "pods/log", "get"),
            *(
                ("", f"pods/{part}", verb)
                for part in ("exec", "attach", "portforward")
                for verb in ("get", "create")
            ),
        },
    ),
    "rbac/options/vn-agent-apiserver-pages.yaml": ((), {("", "nodes/proxy", "get")}),
    "rbac/options/vn-agent-tenants.yaml": ((vnagent.sources.super_tenants,), set[tuple[str, str, str]]()),
}


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def rights(path: Path) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of all roles of a file."""
    return {
        (group, resource, verb)
        for value in documents(path)
        for rule in value.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def watched(modules: tuple[ModuleType, ...]) -> set[tuple[str, str, str]]:
    """`list` and `watch` of each kind that these modules name."""
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Resource)}
    return {(each.group, each.plural, verb) for each in found for verb in ("list", "watch")}


@pytest.mark.parametrize("file", OTHER)
def test_role_is_what_the_daemon_asks_for_and_no_more(file: str) -> None:
    modules, more = OTHER[file]
    assert rights(PACKAGING / file) == watched(modules) | more


@pytest.mark.parametrize("daemon", NodeDaemon, ids=lambda daemon: daemon.value)
def test_init_finds_the_rights_of_each_daemon(daemon: NodeDaemon) -> None:
    for name in daemon.manifests:
        found = PACKAGING / "rbac" / name
        assert documents(found), name
        # A link leads to the one file, beside the Deployment.
        assert found.is_symlink() == (daemon in (NodeDaemon.VC_SYNCER, NodeDaemon.VC_OPERATOR))


def test_no_role_has_wildcards_or_leads_to_more_rights() -> None:
    for path in PACKAGING.rglob("*.yaml"):
        if "helm" in path.parts or path.name in ("values.yaml", "Chart.yaml"):
            continue
        for group, resource, verb in rights_or_none(path):
            assert "*" not in (group, resource, verb), path
            assert verb not in ("escalate", "bind", "impersonate", "deletecollection"), path


def rights_or_none(path: Path) -> set[tuple[str, str, str]]:
    if not any(isinstance(value, dict) and "rules" in value for value in documents(path)):
        return set()
    return rights(path) if "kind: ClusterRole" in path.read_text() else set()


def test_no_code_has_rules_of_its_own_but_the_tenants_dns() -> None:
    """vc-syncer makes a role for the DNS server of a tenant's network, in the tenant."""
    root = examples.ROOT
    packages = {path.parent.name for path in root.glob("*/__init__.py")} - {"tests", "devkit", "vcnode_demo"}
    found = {
        str(path.relative_to(root))
        for package in packages
        for path in (root / package).rglob("*.py")
        if re.search(r"""["']verbs["']|^\s*verbs: \[""", path.read_text(), re.MULTILINE)
    }
    assert found == {"syncer/networks/objects.py"}


def kustomizations() -> Iterator[tuple[str, Any]]:
    for name in BASES:
        yield name, yaml.safe_load((PACKAGING / name / "kustomization.yaml").read_text())


def test_each_object_is_in_one_base() -> None:
    taken = [
        f"{name}/{each}"
        for name, value in kustomizations()
        for each in value["resources"]
        if each.endswith(".yaml")
    ]
    taken += [
        f"{name}/{each['path']}"
        for name, value in kustomizations()
        for each in value.get("patches", ())
        if "path" in each
    ]
    present = {
        f"{name}/{path.name}"
        for name in BASES
        for path in (PACKAGING / name).glob("*.yaml")
        if path.name != "kustomization.yaml"
    }
    assert sorted(taken) == sorted(present - LEFT_OUT.keys())


@pytest.mark.parametrize("name", ["syncer", "operator", "webhook"])
def test_policies_are_applied_before_the_rights_that_they_limit(name: str) -> None:
    value = dict(kustomizations())[name]
    assert value["sortOptions"] == {"order": "fifo"}
    assert value["resources"][:2] == ["policy.yaml", "rbac.yaml"]


def test_chart_has_no_object_of_its_own() -> None:
    """Templates take the shipped files, which the chart has by links."""
    for path in (CHART / "templates").iterdir():
        assert not re.search(r"^(apiVersion|kind):", path.read_text(), re.MULTILINE), path.name
    for link in (CHART / "files").iterdir():
        assert link.is_symlink(), link.name
        assert link.resolve() == PACKAGING / link.name
    assert {"crds", "rbac", "syncer", "operator", "webhook", "webhook-cert-manager"} == {
        each.name for each in (CHART / "files").iterdir()
    }


def test_charts_files_exist() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    named = re.findall(r'"files/([\w/.-]+\.yaml)"', text)
    assert len(named) >= 6
    assert [each for each in named if not (PACKAGING / each).exists()] == []


def test_default_values_follow_the_schema_which_is_closed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    for place in ("", "syncer", "operator", "webhook", "nodes", "crds"):
        wrong = json.loads(json.dumps(values))
        (wrong[place] if place else wrong)["surprise"] = 1
        with pytest.raises(jsonschema.ValidationError, match="surprise"):
            jsonschema.validate(wrong, schema)


def test_webhook_fails_closed_in_all_renderings() -> None:
    (registration,) = documents(PACKAGING / "webhook" / "registration.yaml")
    assert [each["failurePolicy"] for each in registration["webhooks"]] == ["Fail"]
    patched = documents(PACKAGING / "webhook-cert-manager" / "patches.yaml")
    assert "webhooks" not in patched[-1]
