# SPDX-License-Identifier: Apache-2.0
"""The list of objects that a tenant is to have: built in, and of its ClusterVersion, in this order.

- Rights of vc-syncer and of the tenant's administrators, always. They are essential: without them the tenant
  does not work, so they are applied again although the tenant has changed or deleted them.
- With `images.coreDns` CoreDNS, for a vc-syncer with `networks.enabled: false`. Without it the definition of
  Networks and Network `default`, whose DNS server vc-syncer makes. vc-syncer makes both itself where they
  are missing; who comes first does not matter, as their content is the same.
- With `images.metricsServer` metrics-server, once its client certificate is there.
- The ConfigMaps of the ClusterVersion. A manifest of an object that is in the list already replaces it there.

Texts may have `${vc.name}`: see `tenant_values`. It is replaced in values, never in the text of YAML, so
that no value can become structure.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tenant_operator.defaults.documents import MAX_OBJECTS, ManifestError, read_manifests
from tenant_operator.defaults.field_owners import MANAGED
from tenant_operator.defaults.kinds import CRD_KIND, TenantRef, kinds_of, ref_in
from tenant_operator.defaults.rights import ADMINS_FILE, SYNCER_FILE, syncer_role
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object

NETWORKS_CRD_FILE = "networks-crd.yaml"
NETWORK_FILE = "network-default.yaml"
COREDNS_FILE = "coredns.yaml"
METRICS_SERVER_FILE = "metrics-server.yaml"

_METRICS_SECRET = "metrics-server-kubelet-client"  # noqa: S105 - an object's name
_SERVER_FIELDS = frozenset(
    {
        *("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "selfLink"),
        *("namespace", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds"),
    }
)
_ESSENTIAL = (SYNCER_FILE, ADMINS_FILE, NETWORKS_CRD_FILE)
_VALUE = re.compile(r"\$\{vc\.([A-Za-z.]{1,64})\}")
_ENCODER = msgspec.json.Encoder(order="deterministic")


class DesiredObject(msgspec.Struct, frozen=True):
    """One object that the tenant is to have.

    `copied_from`: a Secret of the root namespace whose `tls.crt` and `tls.key` the edge fills in, which
    alone sees keys. `digest` is of the manifest, and of that Secret.
    """

    ref: TenantRef
    path: str
    manifest: Object
    digest: str
    is_essential: bool = False
    copied_from: str = ""


class DesiredList(msgspec.Struct, frozen=True):
    """All objects in their order. `problems`: what of the list cannot be used, each with its place."""

    objects: tuple[DesiredObject, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Differs whenever something in the list does."""
        return _digest([[*each.ref, each.digest, each.is_essential] for each in self.objects])


class ManifestFile(msgspec.Struct, frozen=True):
    """A text that was read: its objects, or why it cannot be used."""

    source: str
    objects: tuple[Object, ...] = ()
    problem: str = ""


def builtin_files(texts: Mapping[str, str], syncer_rules: Sequence[Object] = ()) -> dict[str, ManifestFile]:
    """The operator's own files by their names. `syncer_rules` are added to vc-syncer's rights."""
    return {
        name: ManifestFile(name, syncer_role(text, syncer_rules))
        if name == SYNCER_FILE
        else ManifestFile(name, read_manifests(text, name))
        for name, text in texts.items()
    }


def config_map_files(name: str, data: Mapping[str, str]) -> tuple[ManifestFile, ...]:
    """The values of a ConfigMap in the order of their keys."""
    return tuple(_file(f"ConfigMap {name}, key {key}", data[key]) for key in sorted(data))


def _file(source: str, text: str) -> ManifestFile:
    try:
        return ManifestFile(source, read_manifests(text, source))
    except ManifestError as error:
        return ManifestFile(source, problem=str(error))


class DefaultsInputs(msgspec.Struct, frozen=True):
    """What the list is made from beside the control plane.

    `builtin` are the operator's own files, `config_maps` those that the ClusterVersion names, as far as they
    exist: each was read once. `metrics_client_digest` is of Secret `metrics-client`, empty while that is not
    there.
    """

    builtin: Mapping[str, "ManifestFile"]
    config_maps: Mapping[str, tuple["ManifestFile", ...]] = {}
    kubelet_serving_authority_pem: str = ""
    metrics_client_digest: str = ""


def tenant_values(control_plane: ControlPlane, inputs: DefaultsInputs) -> dict[str, str]:
    """What stands for `${vc.…}` in the manifests of this tenant."""
    images = control_plane.release.images
    authority = inputs.kubelet_serving_authority_pem
    return {
        "name": control_plane.name,
        "namespace": control_plane.namespace,
        "key": control_plane.key,
        "clusterDomain": control_plane.cluster_domain,
        "serviceCidrs": ",".join(control_plane.service_cidrs),
        "kubernetesVersion": control_plane.release.kubernetes_version,
        "images.coreDns": images.core_dns,
        "images.metricsServer": images.metrics_server,
        "kubeletServingAuthority": authority,
        "kubeletServingAuthorityDigest": hashlib.sha256(authority.encode()).hexdigest()[:32],
    }


def desired_list(control_plane: ControlPlane, inputs: DefaultsInputs) -> DesiredList:
    """The list for one tenant. What of it cannot be used is left out, and named in `problems`."""
    problems: list[str] = []
    values = tenant_values(control_plane, inputs)
    files = [*_builtin(control_plane, inputs, problems), *_named(control_plane, inputs, problems)]
    manifests: list[tuple[Object, str]] = []
    for file in files:
        for manifest in file.objects:
            unknown: set[str] = set()
            filled = _filled(manifest, values, unknown)
            if unknown:
                shown = ", ".join(f"${{vc.{name}}}" for name in sorted(unknown))
                problems.append(f"{file.source}: no such value: {shown}")
            else:
                manifests.append((filled, file.source))
    objects = _objects(manifests, inputs, problems)
    if len(objects) > MAX_OBJECTS:
        problems.append(f"the list has {len(objects)} objects; the first {MAX_OBJECTS} are applied")
    return DesiredList(tuple(objects[:MAX_OBJECTS]), tuple(problems))


def _builtin(
    control_plane: ControlPlane, inputs: DefaultsInputs, problems: list[str]
) -> Iterator[ManifestFile]:
    images = control_plane.release.images
    dns = (COREDNS_FILE,) if images.core_dns else (NETWORKS_CRD_FILE, NETWORK_FILE)
    yield from (inputs.builtin[name] for name in (SYNCER_FILE, ADMINS_FILE, *dns))
    if not images.metrics_server:
        return
    if inputs.metrics_client_digest and inputs.kubelet_serving_authority_pem:
        yield inputs.builtin[METRICS_SERVER_FILE]
    else:
        problems.append(f"metrics-server waits for Secret {control_plane.key}/{names.METRICS_CLIENT}")


def _named(
    control_plane: ControlPlane, inputs: DefaultsInputs, problems: list[str]
) -> Iterator[ManifestFile]:
    """The ConfigMaps of the ClusterVersion."""
    for ref in control_plane.release.defaults:
        files = inputs.config_maps.get(ref.config_map)
        if files is None:
            version = f"ClusterVersion {control_plane.release.name}"
            problems.append(
                f"ConfigMap {ref.config_map} of {version} does not exist in the operator's namespace:"
                " create it, or take it out of spec.defaults"
            )
        for file in files or ():
            if file.problem:
                problems.append(file.problem)
            yield file


def _objects(
    manifests: Sequence[tuple[Object, str]], inputs: DefaultsInputs, problems: list[str]
) -> list[DesiredObject]:
    kinds = kinds_of(manifest for manifest, _ in manifests)
    found: dict[TenantRef, DesiredObject] = {}
    for manifest, source in manifests:
        ref = ref_in(manifest, kinds)
        if isinstance(ref, str):
            problems.append(f"{source}: {ref}")
            continue
        resource = kinds[ref.api_version, ref.kind]
        is_metrics_client = source == METRICS_SERVER_FILE and ref.name == _METRICS_SECRET
        copied = names.METRICS_CLIENT if is_metrics_client else ""
        before = found.get(ref)
        found[ref] = DesiredObject(
            ref,
            resource.path(ref.namespace or None, ref.name),
            _identified(manifest, ref),
            _digest([manifest, inputs.metrics_client_digest if copied else ""]),
            source in _ESSENTIAL or (before is not None and before.is_essential),
            copied,
        )
    return list(found.values())


def _identified(manifest: Object, ref: TenantRef) -> Object:
    """With its namespace and our annotation; without what only an API server writes."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in _SERVER_FIELDS}
    annotations = metadata.get("annotations")
    marked = {MANAGED: "true", **(annotations if isinstance(annotations, dict) else {})}
    place = {"namespace": ref.namespace} if ref.namespace else {}
    rest = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": {**metadata, **place, "name": ref.name, "annotations": marked}}


def _filled(value: Any, values: Mapping[str, str], unknown: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, values, unknown) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values, unknown) for each in value]
    if not isinstance(value, str):
        return value
    unknown.update(name for name in _VALUE.findall(value) if name not in values)
    return _VALUE.sub(lambda match: values.get(match[1], match[0]), value)


def is_definition(ref: TenantRef) -> bool:
    """Whether this is a CustomResourceDefinition."""
    return (ref.api_version, ref.kind) == CRD_KIND


def _digest(value: Any) -> str:
    return hashlib.sha256(_ENCODER.encode(value)).hexdigest()[:32]
