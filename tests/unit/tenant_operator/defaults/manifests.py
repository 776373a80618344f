# SPDX-License-Identifier: Apache-2.0
"""Values that tests of the defaults share."""

from tenant_operator.defaults.desired import DesiredObject
from tenant_operator.defaults.field_owners import MANAGED
from tenant_operator.defaults.kinds import CRD_KIND, KINDS, TenantRef
from tenant_operator.model.objects import OPERATOR, Object

API_VERSION, CRD_NAME = "example.com/v1", "widgets.example.com"


def config_map(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "a"},
        "data": data,
    }


def definition() -> Object:
    return {
        "apiVersion": CRD_KIND[0],
        "kind": CRD_KIND[1],
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1"}],
        },
    }


def widget(name: str) -> Object:
    return {"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}}


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"a": "b"}}}


def ref_of(manifest: Object) -> TenantRef:
    metadata = manifest["metadata"]
    return TenantRef(
        manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), metadata["name"]
    )


def path_of(ref: TenantRef) -> str:
    if ref.kind == "Widget":
        return f"/apis/example.com/v1/widgets/{ref.name}"
    return KINDS[ref.api_version, ref.kind].path(ref.namespace or None, ref.name)


def desired(manifest: Object, digest: str = "d1", *, is_essential: bool = False) -> DesiredObject:
    ref = ref_of(manifest)
    return DesiredObject(ref, path_of(ref), manifest, digest, is_essential)


def fields_of(value: object) -> Object:
    """The fields of a manifest as managedFields has them; lists as a whole."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": fields_of(each) for key, each in value.items()}


def live(
    manifest: Object, uid: str, managers: dict[str, Object] | None = None, *, released: bool = False
) -> Object:
    """The object as the API server has it. `managers`: the fields of each; by default all are ours."""
    rest = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    entries = {OPERATOR: fields_of(rest)} if managers is None else managers
    metadata = {
        **manifest["metadata"],
        "uid": uid,
        "resourceVersion": "7",
        "managedFields": [
            {
                "manager": name,
                "operation": "Apply" if name == OPERATOR else "Update",
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
            for name, fields in entries.items()
        ],
    }
    if released:
        metadata["annotations"] = {MANAGED: "false"}
    return {**manifest, "metadata": metadata}
