# SPDX-License-Identifier: Apache-2.0
"""Whether a ClusterVersion can be used, and what control planes of it have.

A ClusterVersion of ours is data. One of upstream's has a StatefulSet for each component, of which images,
replicas and requests are read; the rest of it is the operator's. What the API server's schema refuses is
refused here too: an object may be older than the schema.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tenant_operator.model.cluster_version import (
    DEFAULT_CLASS,
    ClusterVersion,
    ClusterVersionSpec,
    ComponentSize,
    Release,
    SizeClass,
)
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.quantities import canonical

# AuthenticationConfiguration limits anonymous requests by path since 1.32; older than 1.33 nothing is tested.
MIN_KUBERNETES = (1, 33, 0)
# etcdutl raises the revisions of a restored store since 3.6.
MIN_ETCD = (3, 6, 0)
# Before 3.7.3 a tenant's user may compact the store of all, and is refused the Status for consistent reads.
MIN_SHARED_ETCD = (3, 7, 3)
DATASTORES = ("etcd", "kine-sqlite", "kine-postgresql", "shared-etcd")
_SHARED = ("kine-postgresql", "shared-etcd")
_ETCD_REPLICAS = (1, 3)

_Version = tuple[int, int, int]
# At most 1 000 characters are read: images' names have fewer.
_MAX_IMAGE_CHARS = 1000
_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(?![0-9.])")
# Upstream's samples have the version in the name: virtualcluster/apiserver-v1.21.9.
_IN_NAME = re.compile(r"-v([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})\Z")


def release_of(cluster_version: ClusterVersion) -> Release | SpecProblem:
    """The ClusterVersion as control planes use it, or its first problem."""
    spec = without_bundles(cluster_version.spec)
    problem = next(_problems(spec), None)
    if problem is not None:
        return msgspec.structs.replace(problem, of=f"ClusterVersion {cluster_version.metadata.name}")
    version = _kubernetes_version(spec)
    etcd_version = _etcd_version(spec)
    assert version is not None  # noqa: S101 - _problems() has refused it
    return Release(
        name=cluster_version.metadata.name,
        kubernetes_version=_text(version),
        version=version,
        etcd_version=_text(etcd_version) if etcd_version else "",
        images=spec.images,
        datastore=msgspec.structs.replace(
            spec.datastore, size=canonical(spec.datastore.size) or spec.datastore.size
        ),
        classes={name: _canonical(each) for name, each in spec.classes.items()},
        default_class=spec.default_class or DEFAULT_CLASS,
        upgrades_from=tuple(spec.upgrades_from),
        api_server_args=spec.api_server_args,
        controller_manager_args=spec.controller_manager_args,
        audit_policy=spec.audit_policy,
        authentication_config=spec.authentication_config,
        defaults=tuple(spec.defaults),
    )


def _problems(spec: ClusterVersionSpec) -> Iterator[SpecProblem]:
    yield from _image_problems(spec)
    yield from _version_problems(spec)
    yield from _datastore_problems(spec)
    yield from _class_problems(spec)


def _image_problems(spec: ClusterVersionSpec) -> Iterator[SpecProblem]:
    images, store = spec.images, spec.datastore.type
    needed = {
        "apiServer": images.api_server,
        "controllerManager": images.controller_manager,
        **({"etcd": images.etcd} if store == "etcd" else {}),
        **({"kine": images.kine} if store.startswith("kine-") else {}),
    }
    for field, image in needed.items():
        if not image:
            yield SpecProblem(f"spec.images.{field}", "ImageMissing", "no image is named", "name one")


def _version_problems(spec: ClusterVersionSpec) -> Iterator[SpecProblem]:
    field = "spec.kubernetesVersion"
    version = _kubernetes_version(spec)
    if version is None:
        problem = (
            "is not a version" if spec.kubernetes_version else "the image of the API server has no version"
        )
        yield SpecProblem(field, "VersionUnknown", problem, "write it as 1.34.4")
        return
    if version < MIN_KUBERNETES:
        yield SpecProblem(
            field,
            "VersionUnsupported",
            f"{_text(version)} is older than {_text(MIN_KUBERNETES)}",
            "name images of a newer Kubernetes",
        )
    for name, image in (
        ("apiServer", spec.images.api_server),
        ("controllerManager", spec.images.controller_manager),
    ):
        tagged = _version_of_image(image)
        # Other programs' tags, such as a mirror's own numbers, say nothing.
        if tagged is not None and tagged[0] == 1 and tagged[1] >= MIN_KUBERNETES[1] and tagged != version:
            yield SpecProblem(
                f"spec.images.{name}",
                "VersionMismatch",
                f"the image is of {_text(tagged)} and spec.kubernetesVersion is {_text(version)}",
                "make them the same",
            )


def _datastore_problems(spec: ClusterVersionSpec) -> Iterator[SpecProblem]:
    store = spec.datastore
    if store.type not in DATASTORES:
        known = ", ".join(DATASTORES)
        yield SpecProblem(
            "spec.datastore.type",
            "DatastoreUnknown",
            f"{store.type[:80]!r} is unknown",
            f"use one of {known}",
        )
        return
    if store.type in _SHARED and not store.secret_name:
        yield SpecProblem(
            "spec.datastore.secretName",
            "DatastoreSecretMissing",
            "a shared server needs credentials",
            "name a Secret of the operator's namespace",
        )
    version = _etcd_version(spec)
    if spec.etcd_version and version is None:
        yield SpecProblem("spec.etcdVersion", "VersionUnknown", "is not a version", "write it as 3.7.3")
    if store.type == "shared-etcd" and (version is None or version < MIN_SHARED_ETCD):
        yield SpecProblem(
            "spec.etcdVersion",
            "EtcdUnsafe",
            f"in a shared etcd before {_text(MIN_SHARED_ETCD)} a tenant's user may compact what others read",
            f"upgrade it and set spec.etcdVersion, at least {_text(MIN_SHARED_ETCD)}, or use datastore etcd",
        )
    if store.type == "etcd" and version is not None and version < MIN_ETCD:
        yield SpecProblem(
            "spec.etcdVersion",
            "VersionUnsupported",
            f"{_text(version)} is older than {_text(MIN_ETCD)}",
            "name an image of etcd 3.7.3 or newer",
        )


def _class_problems(spec: ClusterVersionSpec) -> Iterator[SpecProblem]:
    default = spec.default_class or DEFAULT_CLASS
    if default not in spec.classes:
        known = ", ".join(sorted(spec.classes)[:16])
        yield SpecProblem(
            "spec.defaultClass",
            "ClassUnknown",
            f"{default[:80]!r} is not in spec.classes",
            f"use one of {known}",
        )
    for name, size in spec.classes.items():
        yield from _quantity_problems(name, size)
        if size.etcd.replicas not in _ETCD_REPLICAS:
            yield SpecProblem(
                f"spec.classes.{name}.etcd.replicas",
                "ReplicasInvalid",
                f"etcd with {size.etcd.replicas} members has no sound quorum",
                "use 1 or 3",
            )


def _quantity_problems(name: str, size: SizeClass) -> Iterator[SpecProblem]:
    parts = (
        ("apiServer", size.api_server),
        ("controllerManager", size.controller_manager),
        ("etcd", size.etcd),
    )
    for component, each in parts:
        quantities = (
            ("cpu", each.cpu),
            ("memory", each.memory),
            ("goMemoryLimit", each.go_memory_limit.removesuffix("B")),
        )
        for field, text in quantities:
            found = canonical(text)
            if text and (found is None or (field != "cpu" and found[-1] in "num")):
                yield SpecProblem(
                    f"spec.classes.{name}.{component}.{field}",
                    "QuantityInvalid",
                    f"{text[:80]!r} is not a quantity",
                    "write it as 100m, 2 or 512Mi",
                )


def _canonical(size: SizeClass) -> SizeClass:
    def of(each: ComponentSize) -> ComponentSize:
        cpu, memory = canonical(each.cpu) or each.cpu, canonical(each.memory) or each.memory
        return msgspec.structs.replace(each, cpu=cpu, memory=memory)

    return SizeClass(of(size.api_server), of(size.controller_manager), of(size.etcd))


def without_bundles(spec: ClusterVersionSpec) -> ClusterVersionSpec:
    """The spec with a class of its own, and with what upstream's bundles have in our fields."""
    bundles = {
        "api_server": _container(spec.api_server),
        "controller_manager": _container(spec.controller_manager),
        "etcd": _container(spec.etcd),
    }
    images, size = spec.images, SizeClass()
    for name, (container, replicas) in bundles.items():
        image = container.get("image")
        if isinstance(image, str) and not getattr(images, name):
            images = msgspec.structs.replace(images, **{name: image})
        if container:
            component = _component_size(getattr(size, name), container, replicas)
            size = msgspec.structs.replace(size, **{name: component})
    classes = spec.classes or {DEFAULT_CLASS: size}
    return msgspec.structs.replace(
        spec, images=images, classes=classes, api_server=None, controller_manager=None, etcd=None
    )


def _container(bundle: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], object]:
    """The first container of a bundle's StatefulSet, and how many replicas it has."""
    spec = _mapping(_mapping(bundle).get("statefulset")).get("spec")
    pod = _mapping(_mapping(_mapping(spec).get("template")).get("spec"))
    containers = pod.get("containers")
    first = containers[0] if isinstance(containers, list) and containers else None
    return _mapping(first), _mapping(spec).get("replicas")


def _component_size(size: ComponentSize, container: Mapping[str, Any], replicas: object) -> ComponentSize:
    requests = _mapping(_mapping(container.get("resources")).get("requests"))
    given: dict[str, Any] = {
        name: str(value) for name in ("cpu", "memory") if isinstance(value := requests.get(name), str | int)
    }
    if isinstance(replicas, int) and replicas > 0:
        given["replicas"] = replicas
    return msgspec.structs.replace(size, **given)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _kubernetes_version(spec: ClusterVersionSpec) -> _Version | None:
    if spec.kubernetes_version:
        return _parsed(spec.kubernetes_version)
    return _version_of_image(spec.images.api_server)


def _etcd_version(spec: ClusterVersionSpec) -> _Version | None:
    if spec.etcd_version:
        return _parsed(spec.etcd_version)
    # The image of a shared etcd is not ours to know.
    return _version_of_image(spec.images.etcd) if spec.datastore.type == "etcd" else None


def _parsed(text: str) -> _Version | None:
    found = _VERSION.fullmatch(text)
    return _numbers(found) if found else None


def _version_of_image(image: str) -> _Version | None:
    """By its tag, else by the end of its name."""
    name = image[:_MAX_IMAGE_CHARS].partition("@")[0].rpartition("/")[2]
    name, _, tag = name.partition(":")
    found = _VERSION.match(tag) if tag else _IN_NAME.search(name)
    return _numbers(found) if found else None


def _numbers(found: re.Match[str]) -> _Version:
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def _text(version: _Version) -> str:
    return ".".join(map(str, version))
