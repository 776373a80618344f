# SPDX-License-Identifier: Apache-2.0
"""All objects of a native control plane: written out whole for the usual one, by rules for all others."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from tenant_operator.model import names
from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object
from tenant_operator.provisioners import native
from tests.kube_schemas import check
from tests.unit.tenant_operator.control_planes import IMAGES, INPUTS, RELEASE, control_plane, release_of

GOLDEN = Path(__file__).parent / "golden"

VERSIONS = [(1, 33, 13), (1, 34, 4), (1, 35, 0)]
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


def generated() -> Iterator[ControlPlane]:
    """Control planes of all sizes, versions and datastores, asleep and awake."""
    datastores = [
        DatastoreSpec(),
        DatastoreSpec(size=""),
        *(
            DatastoreSpec(type=each, secret_name="s")
            for each in ("kine-sqlite", "kine-postgresql", "shared-etcd")
        ),
    ]
    for version, replicas, datastore, signer in itertools.product(
        VERSIONS, (1, 3), datastores, ("", IMAGES.signer)
    ):
        images = msgspec.structs.replace(IMAGES, signer=signer)
        release = release_of(version, images=images, audit_policy=AUDIT if signer else None)
        for is_asleep in (False, True):
            yield control_plane(release=release, replicas=replicas, datastore=datastore, is_asleep=is_asleep)


def manifests(of: ControlPlane, inputs: ManifestInputs = INPUTS) -> list[Object]:
    return [each for group in native.groups(of, inputs) for each in group.manifests]


def named(found: list[Object], kind: str, name: str) -> Object:
    (only,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return only


def templates(found: list[Object]) -> list[Object]:
    kinds = ("Deployment", "StatefulSet")
    return [each["spec"]["template"] for each in found if each["kind"] in kinds]


def test_a_control_plane_is_as_written_out() -> None:
    """Read golden/small.yaml as a reviewer would; `python -m tests.unit... ` is not needed to change it."""
    assert manifests(control_plane()) == list(yaml.safe_load_all((GOLDEN / "small.yaml").read_text()))


def test_groups_are_in_order() -> None:
    found = native.groups(control_plane(), INPUTS)
    assert [(each.name, each.waits) for each in found] == [
        ("network", False),
        ("datastore", True),
        ("apiserver", True),
        ("controller-manager", True),
    ]


@pytest.mark.parametrize("each", list(generated()))
def test_objects_have_the_fields_of_their_kinds(each: ControlPlane) -> None:
    assert [fault for manifest in manifests(each) for fault in check.faults(manifest)] == []


@pytest.mark.parametrize("each", list(generated()))
def test_names_are_unique_and_in_the_root_namespace(each: ControlPlane) -> None:
    found = manifests(each)
    keys = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in found]
    assert len(set(keys)) == len(keys)
    assert {manifest["metadata"]["namespace"] for manifest in found} == {each.key}
    assert all(each.labels.items() <= manifest["metadata"]["labels"].items() for manifest in found)


@pytest.mark.parametrize("each", list(generated()))
def test_pods_are_restricted(each: ControlPlane) -> None:
    """Pod Security's level `restricted`, no token, and each mount is of a volume that the pod has."""
    for template in templates(manifests(each)):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        volumes = {volume["name"] for volume in spec["volumes"]} | {"data"}
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
            assert container["image"]


@pytest.mark.parametrize("each", list(generated()))
def test_files_of_flags_are_mounted(each: ControlPlane) -> None:
    """What a flag names below the directory of files is a key of a Secret or ConfigMap of the pod."""
    for template in templates(manifests(each)):
        spec = template["spec"]
        (files,) = (volume["projected"] for volume in spec["volumes"] if volume["name"] == "files")
        paths = {
            item["path"]
            for source in files["sources"]
            for item in (source.get("secret") or source["configMap"])["items"]
        }
        prefix = "/etc/kubernetes/files/"
        used = {
            argument.partition("=")[2].removeprefix(prefix)
            for container in spec["containers"]
            for argument in container["args"]
            if prefix in argument
        }
        assert used
        assert used <= paths
        assert {
            path for path in paths - used if not path.endswith(("/tls.crt", "/tls.key", "/ca.crt"))
        } == set()


@pytest.mark.parametrize("is_asleep", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_sleeping_one_has_no_pod(replicas: int, is_asleep: bool) -> None:
    found = manifests(control_plane(replicas=replicas, is_asleep=is_asleep))
    workloads = [each for each in found if each["kind"] in ("Deployment", "StatefulSet")]
    assert [each["spec"]["replicas"] for each in workloads] == [0 if is_asleep else replicas] * 3


# The Secrets of certificates, which their programs read again, change no pod.
RELOADED = [names.API_SERVER_SERVING, names.API_SERVER_KUBELET_CLIENT, names.CONTROLLER_MANAGER_CLIENT]


@pytest.mark.parametrize(
    ("changed", "restarted"),
    [
        *((secret, []) for secret in RELOADED),
        (names.SERVICE_ACCOUNT_KEYS, []),
        (names.ENCRYPTION_CONFIG, []),
        (f"{names.AUTHORITIES}/{names.REQUEST_HEADER_BUNDLE}", []),
        (f"{names.AUTHORITIES}/{names.CLUSTER_BUNDLE}", ["controller-manager"]),
        (f"{names.AUTHORITIES}/{names.ETCD_BUNDLE}", []),
        (f"{names.ETCD_CA}/{names.LOADED}", ["apiserver"]),
        (f"{names.ETCD_CA}/{names.FIRST_LOADED}", ["etcd"]),
        (f"{names.API_SERVER_ETCD_CLIENT}/{names.ISSUER}", ["apiserver"]),
        (f"{names.AUTHORITIES}/{names.KUBELET_SERVING_BUNDLE}", ["apiserver"]),
    ],
)
def test_pods_restart_for_files_that_are_read_once(changed: str, restarted: list[str]) -> None:
    before = templates(manifests(control_plane(), ManifestInputs(digests={changed: "1"})))
    after = templates(manifests(control_plane(), ManifestInputs(digests={changed: "2"})))
    differ = [new for old, new in zip(before, after, strict=True) if old != new]
    assert [each["metadata"]["labels"][names.COMPONENT] for each in differ] == restarted


def test_members_restart_one_after_the_other_or_not_at_all() -> None:
    """One that is alone takes its API server with it."""
    changed = f"{names.ETCD_CA}/{names.LOADED}"
    for replicas, restarted in ((1, False), (3, True)):
        before, after = (
            named(
                manifests(control_plane(replicas=replicas), ManifestInputs(digests={changed: each})),
                "StatefulSet",
                "etcd",
            )
            for each in "12"
        )
        assert (before != after) is restarted


def test_a_signer_that_is_dead_takes_its_pod_out_of_service() -> None:
    """The API server's own /readyz stays 200 then. It waits for the signer itself."""
    deployment = named(manifests(control_plane()), "Deployment", "apiserver")
    (signer,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert (signer["name"], signer["restartPolicy"]) == ("vc-signer", "Always")
    paths = {kind: signer[kind]["httpGet"]["path"] for kind in signer if kind.endswith("Probe")}
    assert paths == {"readinessProbe": "/readyz", "livenessProbe": "/livez"}


def test_without_a_signer_a_new_account_key_restarts() -> None:
    without = control_plane(release=release_of((1, 34, 4), images=type(IMAGES)(api_server="a")))
    before, after = (
        named(
            manifests(without, ManifestInputs(digests={names.SERVICE_ACCOUNT_KEYS: each})),
            "Deployment",
            "apiserver",
        )
        for each in "12"
    )
    assert before != after


@pytest.mark.parametrize(
    ("version", "emulated", "has_signer", "gates"),
    [
        ((1, 33, 13), "", False, []),
        ((1, 34, 4), "1.33", True, ["--feature-gates=ExternalServiceAccountTokenSigner=true"]),
        ((1, 34, 4), "", True, []),
        ((1, 35, 0), "1.34", True, []),
    ],
)
def test_the_signer_is_enabled_where_it_is_alpha(
    version: tuple[int, int, int], emulated: str, has_signer: bool, gates: list[str]
) -> None:
    """With a signer 1.33 publishes no keys: its API server signs by itself, with the same key."""
    found = manifests(control_plane(release=release_of(version), emulated_version=emulated))
    pod = named(found, "Deployment", "apiserver")["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert [each for each in arguments if each.startswith("--feature-gates")] == gates
    assert (f"--emulated-version=kube={emulated}" in arguments) == bool(emulated)
    assert [each["name"] for each in pod.get("initContainers", [])] == ["vc-signer"] * has_signer
    assert any(each.startswith("--service-account-signing-key-file") for each in arguments) != has_signer


def test_flags_of_the_release_take_precedence() -> None:
    release = release_of((1, 34, 4), api_server_args={"goaway-chance": "0.01", "event-ttl": "10m"})
    found = manifests(control_plane(release=release, replicas=3))
    (container,) = named(found, "Deployment", "apiserver")["spec"]["template"]["spec"]["containers"]
    assert {"--goaway-chance=0.01", "--event-ttl=10m"} <= set(container["args"])


def test_the_controller_manager_may_stay_behind() -> None:
    older = release_of((1, 33, 13), images=type(IMAGES)(controller_manager="older"))
    found = manifests(control_plane(controller_release=older, emulated_version="1.33"))
    (container,) = named(found, "Deployment", "controller-manager")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "older"
    assert not any(each.startswith("--emulated-version") for each in container["args"])


def test_the_same_input_gives_the_same_manifests() -> None:
    assert manifests(control_plane()) == manifests(control_plane())
    assert RELEASE.api_server_args == {}


@pytest.mark.parametrize(
    ("kind", "after_s"), [("etcd", 9), ("kine-sqlite", 9), ("kine-postgresql", 4), ("shared-etcd", 4)]
)
def test_the_loss_of_a_shared_store_shows_by_the_api_server(kind: str, after_s: int) -> None:
    """Nothing else of the tenant tells it."""
    found = manifests(control_plane(datastore=DatastoreSpec(type=kind, secret_name="s")))
    (container,) = named(found, "Deployment", "apiserver")["spec"]["template"]["spec"]["containers"]
    probe = container["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == after_s
