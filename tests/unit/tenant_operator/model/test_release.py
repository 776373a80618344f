# SPDX-License-Identifier: Apache-2.0
"""ClusterVersions, ours and upstream's, as releases or with their first problem."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.model.cluster_version import (
    ClusterVersion,
    ComponentSize,
    DatastoreSpec,
    DefaultsRef,
    Images,
    Release,
    SizeClass,
)
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.release import release_of

_IMAGES = {"apiServer": "kube-apiserver:v1.34.4", "controllerManager": "kcm:v1.34.4", "etcd": "etcd:v3.7.3"}
_LEAST: dict[str, Any] = {"kubernetesVersion": "1.34.4", "images": _IMAGES}


def of(spec: dict[str, Any]) -> Release | SpecProblem:
    value = {"metadata": {"name": "v1"}, "spec": spec}
    return release_of(msgspec.convert(value, ClusterVersion))


def bundle(image: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "any", "image": image, **spec.pop("container", {})}
    return {
        "metadata": {"name": "any"},
        "statefulset": {"spec": {**spec, "template": {"spec": {"containers": [container]}}}},
        "service": {"spec": {"type": "NodePort"}},
    }


def test_least_release() -> None:
    assert of(_LEAST) == Release(
        name="v1",
        kubernetes_version="1.34.4",
        version=(1, 34, 4),
        etcd_version="3.7.3",
        images=Images(*_IMAGES.values()),
        datastore=DatastoreSpec(),
        classes={"small": SizeClass()},
        default_class="small",
    )


def test_all_fields_of_a_release() -> None:
    spec = {
        "kubernetesVersion": "v1.33.13",
        "etcdVersion": "v3.7.4",
        "images": {
            "apiServer": "r.example:5000/a@sha256:ab",
            "controllerManager": "b:latest",
            "kine": "c",
            "signer": "d",
            "backup": "e",
        },
        "datastore": {"type": "kine-postgresql", "secretName": "pg", "size": "1Gi"},
        "upgradesFrom": ["v0"],
        "defaultClass": "big",
        "classes": {"big": {"apiServer": {"replicas": 3}}},
        "apiServerArgs": {"v": "2"},
        "controllerManagerArgs": {"v": "3"},
        "auditPolicy": {"rules": []},
        "authenticationConfig": {"jwt": []},
        "defaults": [{"configMap": "a"}, {"configMap": "b"}],
        "ofLater": 1,
    }
    assert of(spec) == Release(
        name="v1",
        kubernetes_version="1.33.13",
        version=(1, 33, 13),
        etcd_version="3.7.4",
        images=Images("r.example:5000/a@sha256:ab", "b:latest", kine="c", signer="d", backup="e"),
        datastore=DatastoreSpec(type="kine-postgresql", size="1Gi", secret_name="pg"),
        classes={"big": SizeClass(api_server=ComponentSize(replicas=3))},
        default_class="big",
        upgrades_from=("v0",),
        api_server_args={"v": "2"},
        controller_manager_args={"v": "3"},
        audit_policy={"rules": []},
        authentication_config={"jwt": []},
        defaults=(DefaultsRef("a"), DefaultsRef("b")),
    )


def test_bundles_of_upstream() -> None:
    spec = {
        "apiServer": bundle(
            "r.example:5000/apiserver-v1.34.2",
            replicas=2,
            container={"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}},
        ),
        "controllerManager": bundle("controller-manager-v1.34.2", replicas=1),
        "etcd": bundle("etcd:3.7.3-0", replicas=3),
    }
    small = SizeClass()
    assert of(spec) == Release(
        name="v1",
        kubernetes_version="1.34.2",
        version=(1, 34, 2),
        etcd_version="3.7.3",
        images=Images("r.example:5000/apiserver-v1.34.2", "controller-manager-v1.34.2", "etcd:3.7.3-0"),
        datastore=DatastoreSpec(),
        classes={
            "small": SizeClass(
                api_server=msgspec.structs.replace(small.api_server, replicas=2, cpu="1", memory="1Gi"),
                controller_manager=small.controller_manager,
                etcd=msgspec.structs.replace(small.etcd, replicas=3),
            )
        },
        default_class="small",
    )


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("kube-apiserver:v1.34.4", "1.34.4"),
        ("kube-apiserver:1.34.4", "1.34.4"),
        ("kube-apiserver:v1.34.4-distroless", "1.34.4"),
        ("kube-apiserver:v1.34.4@sha256:0123", "1.34.4"),
        ("r.example:5000/a/kube-apiserver:v1.34.4", "1.34.4"),
        ("virtualcluster/apiserver-v1.34.4", "1.34.4"),
        ("r.example:5000/kube-apiserver", ""),
        ("kube-apiserver:latest", ""),
        ("kube-apiserver:v1.34", ""),
        ("kube-apiserver:v1.34.4.5", ""),
        ("kube-apiserver@sha256:0123", ""),
        ("v1.34.4:", ""),
    ],
)
def test_version_of_an_image(image: str, version: str) -> None:
    spec = {
        "apiServer": bundle(image),
        "controllerManager": bundle("controller-manager"),
        "etcd": bundle("etcd"),
    }
    found = of(spec)
    if version:
        assert isinstance(found, Release)
        assert found.kubernetes_version == version
    else:
        assert found == SpecProblem(
            "spec.kubernetesVersion",
            "VersionUnknown",
            "the image of the API server has no version",
            "write it as 1.34.4",
            "ClusterVersion v1",
        )
        named = of({**spec, "kubernetesVersion": "1.35.0"})
        assert isinstance(named, Release)
        assert named.version == (1, 35, 0)


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"images": {}}, "spec.images.apiServer", "ImageMissing"),
        ({"images": {"apiServer": "a"}}, "spec.images.controllerManager", "ImageMissing"),
        ({"images": {"apiServer": "a", "controllerManager": "b"}}, "spec.images.etcd", "ImageMissing"),
        ({"datastore": {"type": "kine-sqlite"}}, "spec.images.kine", "ImageMissing"),
        ({"kubernetesVersion": "1.34"}, "spec.kubernetesVersion", "VersionUnknown"),
        ({"kubernetesVersion": "1.34.4\n"}, "spec.kubernetesVersion", "VersionUnknown"),
        ({"kubernetesVersion": "1.32.99"}, "spec.kubernetesVersion", "VersionUnsupported"),
        ({"kubernetesVersion": "1.34.5"}, "spec.images.apiServer", "VersionMismatch"),
        (
            {"images": {**_IMAGES, "controllerManager": "kcm:v1.35.0"}},
            "spec.images.controllerManager",
            "VersionMismatch",
        ),
        ({"datastore": {"type": "mysql"}}, "spec.datastore.type", "DatastoreUnknown"),
        (
            {"datastore": {"type": "shared-etcd"}, "etcdVersion": "3.7.3"},
            "spec.datastore.secretName",
            "DatastoreSecretMissing",
        ),
        (
            {"datastore": {"type": "shared-etcd", "secretName": "s"}, "etcdVersion": "3.7.2"},
            "spec.etcdVersion",
            "EtcdUnsafe",
        ),
        (
            {"datastore": {"type": "shared-etcd", "secretName": "s"}, "etcdVersion": "3.6.16"},
            "spec.etcdVersion",
            "EtcdUnsafe",
        ),
        # The server is not the image that is named here.
        ({"datastore": {"type": "shared-etcd", "secretName": "s"}}, "spec.etcdVersion", "EtcdUnsafe"),
        ({"etcdVersion": "new"}, "spec.etcdVersion", "VersionUnknown"),
        ({"etcdVersion": "3.5.28"}, "spec.etcdVersion", "VersionUnsupported"),
        ({"images": {**_IMAGES, "etcd": "etcd:3.4.0"}}, "spec.etcdVersion", "VersionUnsupported"),
        ({"defaultClass": "big"}, "spec.defaultClass", "ClassUnknown"),
        ({"classes": {"big": {}}}, "spec.defaultClass", "ClassUnknown"),
        (
            {"classes": {"small": {"etcd": {"replicas": 2}}}},
            "spec.classes.small.etcd.replicas",
            "ReplicasInvalid",
        ),
    ],
)
def test_problems(change: dict[str, Any], field: str, reason: str) -> None:
    found = of({**_LEAST, **change})
    assert isinstance(found, SpecProblem), found
    assert (found.field, found.reason, found.of) == (field, reason, "ClusterVersion v1")
    assert found.text == f"ClusterVersion v1: {field}: {found.message}; {found.remedy}"


def test_a_shared_etcd_that_is_new_enough() -> None:
    datastore = {"type": "shared-etcd", "secretName": "s"}
    found = of({**_LEAST, "datastore": datastore, "etcdVersion": "3.7.3"})
    assert isinstance(found, Release)
    assert found.etcd_version == "3.7.3"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=10), each, max_size=3),
    max_leaves=10,
)


@given(
    broken=st.dictionaries(
        st.sampled_from(["statefulset", "metadata", "service"]),
        _JSON
        | st.fixed_dictionaries({"spec": _JSON})
        | st.fixed_dictionaries({"spec": st.fixed_dictionaries({"template": _JSON, "replicas": _JSON})})
        | st.fixed_dictionaries(
            {"spec": st.fixed_dictionaries({"template": st.fixed_dictionaries({"spec": _JSON})})}
        ),
    ),
    image=st.text(max_size=40),
)
def test_no_bundle_raises(broken: dict[str, Any], image: str) -> None:
    """Their fields are not checked by the API server."""
    for spec in (
        {"apiServer": broken, "controllerManager": bundle(image), "etcd": bundle("etcd")},
        {"apiServer": bundle(image), "controllerManager": bundle("a"), "etcd": broken},
    ):
        found = of(spec)
        assert isinstance(found, Release) or found.text
