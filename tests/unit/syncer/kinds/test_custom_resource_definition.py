# SPDX-License-Identifier: Apache-2.0
"""What of a CustomResourceDefinition is only true in the super cluster."""

from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.kinds.custom_resource_definition import SYNC
from tests.unit.syncer.kinds.objects import brief, created, patched, plan, tenant_object

PUBLIC = {"tenancy.x-k8s.io/super.public": "true"}
HOOK: Object = {
    "strategy": "Webhook",
    "webhook": {
        "clientConfig": {"service": {"namespace": "system", "name": "hook"}, "caBundle": "eA=="},
        "conversionReviewVersions": ["v1"],
    },
}


def version(name: str, *, storage: bool = False, served: bool = True, **more: Any) -> Object:
    return {"name": name, "served": served, "storage": storage, **more}


def definition(*versions: Object, uid: str = "s-1", stored: tuple[str, ...] = (), **spec: Any) -> Object:
    return tenant_object(
        *("CustomResourceDefinition", "a", ""),
        uid=uid,
        meta={"labels": dict(PUBLIC)},
        spec={"group": "example.com", "versions": list(versions), **spec},
        status={"storedVersions": list(stored)},
    )


def test_a_version_that_is_stored_in_the_tenant_is_kept() -> None:
    """An API server refuses a definition without a version of its own `storedVersions`."""
    found = definition(version("v1", storage=True), stored=("v1",))
    own = definition(version("v1beta1", storage=True), version("v1"), uid="t-1", stored=("v1beta1",))
    result = plan(SYNC, own, found)
    assert patched(result, Side.TENANT)["spec"]["versions"] == [
        version("v1", storage=True),
        version("v1beta1", served=False),
    ]
    assert [each.path for each in result.changes] == ["spec.versions"]
    own["spec"]["versions"] = [version("v1", storage=True), version("v1beta1", served=False)]
    own["status"]["storedVersions"] = ["v1beta1", "v1"]
    assert brief(plan(SYNC, own, found)) == []
    own["status"]["storedVersions"] = ["v1"]
    assert patched(plan(SYNC, own, found), Side.TENANT)["spec"]["versions"] == [version("v1", storage=True)]


def test_a_webhook_that_is_a_service_below_does_not_come_up() -> None:
    found = definition(version("v1", storage=True), version("v1beta1"), conversion=HOOK)
    made = created(plan(SYNC, None, found))["spec"]
    assert made["conversion"] == {"strategy": "None"}
    assert made["versions"] == [version("v1", storage=True), version("v1beta1", served=False)]
    own = {**definition(uid="t-1"), "spec": made}
    result = plan(SYNC, own, found)
    assert (brief(result), [each.path for each in result.changes]) == ([], ["spec.conversion"])
    assert "v1beta1" in result.changes[0].message
    assert "system" not in result.changes[0].message


def test_a_webhook_by_url_comes_up_as_it_is() -> None:
    client = {"url": "https://hook.example.com/convert", "caBundle": "eA=="}
    conversion = HOOK | {"webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    found = definition(version("v1", storage=True), version("v1beta1"), conversion=conversion)
    made = created(plan(SYNC, None, found))["spec"]
    assert (made["conversion"], made["versions"]) == (conversion, found["spec"]["versions"])


def test_unknown_fields_are_preserved_by_the_schema() -> None:
    """`preserveUnknownFields: true` is refused of a new definition in v1."""
    schema = {"openAPIV3Schema": {"type": "object", "properties": {}}}
    found = definition(version("v1", storage=True, schema=schema), version("v2"), preserveUnknownFields=True)
    made = created(plan(SYNC, None, found))["spec"]
    assert "preserveUnknownFields" not in made
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert [each["schema"]["openAPIV3Schema"] for each in made["versions"]] == [
        {**kept, "properties": {}},
        kept,
    ]


def test_annotations_for_the_super_clusters_cert_manager_stay() -> None:
    found = definition(version("v1", storage=True))
    found["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "system/hook", "a": "1"}
    assert created(plan(SYNC, None, found))["metadata"]["annotations"] == {"a": "1"}
