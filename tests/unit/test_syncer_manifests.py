# SPDX-License-Identifier: Apache-2.0
"""packaging/syncer and vc-syncer's rights: complete for what `syncer` asks, and no wider.

That they are enough is what tests/k8s/syncer shows, which runs under these roles alone.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import syncer.config
from syncer.core import memory
from syncer.core.view import PodDns
from syncer.kinds import table
from syncer.kinds.port import KindSync, Scope
from syncer.policy import quantity
from syncer.tenant.caches import NOT_WATCHED
from tests import examples

PACKAGING = examples.ROOT / "packaging"
SUPER = PACKAGING / "syncer" / "rbac.yaml"
TENANT = PACKAGING / "rbac" / "options" / "vc-syncer-tenant.yaml"
DEPLOYMENT = PACKAGING / "syncer" / "deployment.yaml"
SHARDED = PACKAGING / "syncer" / "sharding.yaml"
KINDS = table.kinds(sorted(table.optional_names()), pod_dns=PodDns.NODE)
# Kinds of which tenants' objects go down.
DOWN = [each for each in KINDS if each.scope in (Scope.NAMESPACED, Scope.NAMESPACE, Scope.SYSTEM)]
UP = [each for each in KINDS if each.scope in (Scope.PUBLISHED, Scope.CLAIMED)]


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def of_kind(path: Path, kind: str) -> Any:
    (found,) = [each for each in documents(path) if each["kind"] == kind]
    return found


def rights(path: Path) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of all cluster roles of a file."""
    return set(_rights(path))


def _rights(path: Path) -> Iterator[tuple[str, str, str]]:
    for value in documents(path):
        for rule in value.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])


def of(sync: KindSync, *verbs: str) -> set[tuple[str, str, str]]:
    resource = sync.kind.resource
    return {(resource.group, resource.plural, verb) for verb in verbs}


def name(sync: KindSync) -> str:
    return sync.kind.kind


@pytest.mark.parametrize("sync", KINDS, ids=name)
def test_every_kind_is_watched_in_the_super_cluster(sync: KindSync) -> None:
    assert of(sync, "list", "watch") <= rights(SUPER)


@pytest.mark.parametrize("sync", [each for each in DOWN if name(each) not in NOT_WATCHED], ids=name)
def test_what_goes_down_is_written_there(sync: KindSync) -> None:
    assert of(sync, "get", "create", "patch", "delete") <= rights(SUPER)
    assert of(sync, "list", "watch") <= rights(TENANT)


@pytest.mark.parametrize("sync", UP, ids=name)
def test_what_comes_up_is_only_read_there(sync: KindSync) -> None:
    assert not of(sync, "create", "patch", "update", "delete") & rights(SUPER)
    assert of(sync, "get", "list", "watch", "create", "patch", "delete") <= rights(TENANT)


def test_rights_that_it_must_not_have_are_not_given() -> None:
    found = rights(SUPER) | rights(TENANT)
    verbs = {"get", "list", "watch", "create", "patch", "delete"}
    assert {verb for _, _, verb in found} == verbs
    assert not {group for group, _, _ in rights(SUPER)} & {"rbac.authorization.k8s.io", "coordination.k8s.io"}
    refused = {"pods/exec", "pods/eviction", "pods/binding", "nodes/proxy", "serviceaccounts/token", "*"}
    assert not {resource for _, resource, _ in rights(SUPER)} & refused
    assert {verb for _, resource, verb in rights(SUPER) if resource == "nodes"} == {"list", "watch"}


def shipped() -> str:
    """The example, with its status on loopback: no volume of a pod is writable by its user alone."""
    socket, loopback = "socket: /run/vcnode/vc-syncer/status.sock", "address: 127.0.0.1, port: 10551"
    return examples.shown("vc-syncer.yaml").replace(socket, loopback)


def test_deployment_has_the_example_as_its_file() -> None:
    assert of_kind(DEPLOYMENT, "ConfigMap")["data"]["config.yaml"] == shipped()


def test_sharded_file_is_the_example_with_sharding(tmp_path: Path) -> None:
    text = of_kind(SHARDED, "ConfigMap")["data"]["config.yaml"]
    assert text.startswith(shipped())
    file = tmp_path / "config.yaml"
    file.write_text(text)
    sharding = syncer.config.load(file).sharding
    role = of_kind(SHARDED, "Role")
    assert sharding is not None
    assert sharding.lease.namespace == role["metadata"]["namespace"]
    assert rights(SHARDED) == {
        ("coordination.k8s.io", "leases", verb) for verb in ("list", "create", "patch", "delete")
    }


def test_both_deployments_run_the_same_pod() -> None:
    alone, sharded = (of_kind(path, "Deployment")["spec"] for path in (DEPLOYMENT, SHARDED))
    spec = sharded["template"]["spec"]
    assert spec.pop("topologySpreadConstraints")
    assert sharded["template"] == alone["template"]
    # Without Leases a second one would write too.
    assert (alone["replicas"], alone["strategy"]) == (1, {"type": "Recreate"})


def test_policy_covers_each_kind_that_is_written() -> None:
    """But PersistentVolumes and classes, to which it has no right."""
    policies = [
        each
        for each in documents(PACKAGING / "syncer" / "policy.yaml")
        if each["kind"] == "ValidatingAdmissionPolicy"
    ]
    covered = {
        (group, resource)
        for each in policies
        for rule in each["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    written = {(group, resource) for group, resource, verb in rights(SUPER) if verb in ("create", "patch")}
    assert written <= covered


@pytest.mark.parametrize("path", [DEPLOYMENT, SHARDED])
def test_a_syncer_that_does_not_answer_is_started_anew(path: Path) -> None:
    """One that is merely not ready is not: a tenant or the super cluster may be away for hours."""
    (container,) = of_kind(path, "Deployment")["spec"]["template"]["spec"]["containers"]
    address = container["readinessProbe"]["exec"]["command"][-1]
    probe = container["livenessProbe"]
    assert probe["exec"]["command"] == ["vcnode", "status", "--alive", "--address", address]
    # Longer than any step of the loop, however slow the node is.
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60


@pytest.mark.parametrize("path", [DEPLOYMENT, SHARDED], ids=["one", "sharded"])
def test_memory_limits_are_the_configured_ones(path: Path) -> None:
    """The daemon divides it among tenants: by another figure it would be ended before, or waste the rest."""
    (container,) = of_kind(path, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert quantity.parse(container["resources"]["limits"]["memory"]) == memory.LIMIT_BYTES * quantity.UNIT


def test_the_units_limit_of_memory_is_that_of_the_configuration() -> None:
    unit = (examples.ROOT / "systemd" / "vc-syncer.service").read_text(encoding="utf-8")
    (limit,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("MemoryMax=")]
    assert quantity.parse(f"{limit}i") == memory.LIMIT_BYTES * quantity.UNIT
    (key,) = [each for each in fields(syncer.config.SyncerConfiguration) if each.name == "max_memory_bytes"]
    assert key.default is None
    assert memory.chosen_limit_bytes(None, None) == memory.LIMIT_BYTES
