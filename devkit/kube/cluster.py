# SPDX-License-Identifier: Apache-2.0
"""The writes of a fake API server: what becomes of an object between the request and the storage.

With settings it does what a whole cluster does without nodes: the server's own rules, and the controllers of
namespaces and service accounts. Without settings it stores what it is sent. Checked against
kube-apiserver 1.34 by tests/functional/kube/test_contract_of_writes.py.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, Resource
from devkit.kube import managed_fields, patches, pod_rules, server_side_apply, size_rules, token_requests
from devkit.kube.service_addresses import ServiceAddresses
from devkit.kube.storage import (
    MODIFIED,
    Object,
    Selection,
    StatusError,
    Storage,
    conflict,
    copied,
    invalid,
    not_found,
)
from devkit.kube.times import at

_OWN_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
_SET_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_WITH_STATUS = frozenset(
    {
        *("customresourcedefinitions", "daemonsets", "deployments", "ingresses", "jobs", "namespaces"),
        *("nodes", "persistentvolumeclaims"),
        *("persistentvolumes", "poddisruptionbudgets", "pods", "replicasets", "services", "statefulsets"),
    }
)
# Without a schema and a storage of their own, custom resources are served at once.
_ESTABLISHED = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
_FIRST_STATUS: dict[str, Object] = {
    "customresourcedefinitions": {"conditions": _ESTABLISHED},
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "services": {"loadBalancer": {}},
}
_CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False
)
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How a cluster behaves.

    `has_controllers` puts a service account `default` and the ConfigMap `kube-root-ca.crt` into each
    namespace, and empties the namespaces that are deleted. `with_status` are plurals of custom resources
    whose status is a subresource.
    """

    service_cidr: str = "10.96.0.0/16"
    root_ca_pem: str = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    has_controllers: bool = True
    with_status: frozenset[str] = frozenset()


class Cluster:
    """Carries out writes on a storage. All methods raise StatusError."""

    def __init__(
        self,
        storage: Storage,
        settings: ClusterSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.storage = storage
        self.settings = settings
        self._clock = clock
        self._random = random.Random(0)  # noqa: S311 - suffixes of names
        self._addresses = ServiceAddresses(settings.service_cidr if settings else "10.96.0.0/16")
        if settings is not None:
            for name in _OWN_NAMESPACES:
                self.create(NAMESPACES, {"metadata": {"name": name}})
            ports = [{"name": "https", "port": 443, "targetPort": 6443}]
            service = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"ports": ports}}
            self.create(SERVICES, service)

    # ---- verbs

    def create(self, resource: Resource, value: Object, manager: str = "") -> Object:
        """Store a new object. Of all writes: with a `manager`, they are recorded in `managedFields`."""
        metadata = value.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(self._random.choices(_SUFFIX_CHARACTERS, k=5))
            metadata["name"] = metadata["generateName"] + suffix
        if manager:
            managed_fields.note(None, value, manager)
        if self.settings is None:
            return self.storage.create(resource, value)
        if metadata.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if resource.is_namespaced:
            self._check_namespace(resource, metadata.get("namespace", ""), metadata.get("name", ""))
        if self.storage.has(resource, metadata.get("namespace", ""), metadata.get("name", "")):
            return self.storage.create(resource, value)  # which refuses it
        for field in _SET_BY_SERVER:
            metadata.pop(field, None)
        metadata["creationTimestamp"] = self._now()
        if _has_generation(resource, value):
            metadata["generation"] = 1
        self._complete(resource, value)
        size_rules.check_object(resource, value)
        made = self.storage.create(resource, value)
        if resource == NAMESPACES and self.settings.has_controllers:
            self._fill(metadata["name"], self.settings.root_ca_pem)
        return made

    def update(self, resource: Resource, value: Object, subresource: str = "", manager: str = "") -> Object:
        """Put another state in place of an object, or of the part that a subresource is."""
        metadata = value.setdefault("metadata", {})
        old = self.storage.get(resource, metadata.get("namespace", ""), metadata.get("name", ""))
        uid = old["metadata"]["uid"]
        if metadata.get("uid") not in (None, "", uid):
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
            raise conflict(resource, metadata["name"], why)
        return self._store(resource, old, value, subresource, manager)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        content_type: str,
        body: bytes,
        manager: str = "",
    ) -> Object:
        """Apply a patch to an object, or to the part of it that a subresource is."""
        old = self.storage.get(resource, namespace, name)
        is_custom = "." in resource.group and not resource.group.endswith(".k8s.io")
        if is_custom and content_type.startswith(patches.STRATEGIC):
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        value = patches.patched(content_type, old, body)
        metadata = value["metadata"]
        if (metadata.get("name"), metadata.get("namespace", "")) != (name, namespace):
            raise StatusError(400, "BadRequest", "the name of the object does not match the name on the URL")
        if metadata.get("uid") != old["metadata"]["uid"]:
            # Other than of an update, which is answered with 409.
            raise invalid(resource, name, "metadata.uid: Invalid value: field is immutable")
        return self._store(resource, old, value, subresource, manager)

    def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        manager: str,
        *,
        is_forced: bool = False,
        subresource: str = "",
    ) -> tuple[Object, bool]:
        """Server-side apply. Returns the object, and whether it was made."""
        if not manager:
            raise StatusError(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        config = server_side_apply.parsed(body)
        metadata = config["metadata"]
        if (metadata.get("name", name), metadata.get("namespace", namespace)) != (name, namespace):
            raise StatusError(400, "BadRequest", "the name of the object does not match the name on the URL")
        metadata["name"] = name
        if resource.is_namespaced:
            metadata["namespace"] = namespace
        found = self.storage.peek(resource, namespace, name)
        old = None if found is None else copied(found)
        expected, version = metadata.pop("uid", None), metadata.pop("resourceVersion", None)
        if old is None:
            if expected:
                why = f"uid mismatch: the provided object specified uid {expected}, and there is none"
                raise conflict(resource, name, why)
            if version or subresource:
                raise not_found(resource, name)
            return self.create(
                resource, server_side_apply.applied(None, config, manager, is_forced=True)
            ), True
        if expected not in (None, "", old["metadata"]["uid"]):
            raise invalid(resource, name, "metadata.uid: Invalid value: field is immutable")
        if version not in (None, "", old["metadata"]["resourceVersion"]):
            raise conflict(resource, name, MODIFIED)
        value = server_side_apply.applied(old, config, manager, is_forced=is_forced, subresource=subresource)
        return self._store(resource, old, value, subresource, "", is_applied=True), False

    def delete(self, resource: Resource, namespace: str, name: str, options: Object | None = None) -> Object:
        """Remove an object, or begin to; `options` are DeleteOptions."""
        old = self.storage.get(resource, namespace, name)
        metadata, options = old["metadata"], options or {}
        for field, wanted in (options.get("preconditions") or {}).items():
            if wanted != metadata.get(field):
                why = f"the {field} in the precondition ({wanted}) does not match that in record"
                raise conflict(resource, name, why)
        if self.settings is None:
            return self.storage.delete(resource, namespace, name)
        if resource == NAMESPACES:
            return self._end_namespace(old)
        asked = options.get("gracePeriodSeconds")
        grace_s = pod_rules.grace_s(old, asked) if resource == PODS else 0
        is_deleting = "deletionTimestamp" in metadata
        if is_deleting:
            left_s = metadata.get("deletionGracePeriodSeconds", 0)
            # A deletion can only be made shorter.
            grace_s = left_s if asked is None and left_s else min(grace_s, left_s)
        if grace_s == 0 and not metadata.get("finalizers"):
            return self._remove(resource, old)
        if is_deleting and metadata.get("deletionGracePeriodSeconds", 0) == grace_s:
            return old
        if "generation" in metadata and not is_deleting:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = at(self._clock() + grace_s)
        metadata["deletionGracePeriodSeconds"] = grace_s
        return self.storage.replace(resource, old)

    def delete_all(self, selection: Selection, options: Object | None = None) -> list[Object]:
        """Delete each object that matches."""
        keys = [_key(each) for each in self.storage.select(selection)]
        return [self.delete(selection.resource, *key, options) for key in keys]

    def act(self, resource: Resource, namespace: str, name: str, subresource: str, value: Object) -> Object:
        """The answer to a POST on a subresource: bind or evict a pod, or make a token."""
        if subresource == "token" and resource == token_requests.SERVICE_ACCOUNTS:
            return token_requests.answer(self.storage, namespace, name, value, self._clock())
        if resource != PODS or subresource not in ("binding", "eviction"):
            raise StatusError(405, "MethodNotAllowed", "the server does not allow this method")
        if subresource == "binding":
            pod = self.storage.get(PODS, namespace, name)
            self.storage.replace(PODS, pod_rules.bound(pod, value, self._now()))
        else:
            self.delete(PODS, namespace, name, value.get("deleteOptions"))
        return dict(_SUCCESS)

    # ---- the rules

    def _store(
        self,
        resource: Resource,
        old: Object,
        value: Object,
        subresource: str,
        manager: str,
        *,
        is_applied: bool = False,
    ) -> Object:
        metadata, was = value["metadata"], old["metadata"]
        managed = metadata.get("managedFields") if is_applied else was.get("managedFields")
        if metadata.get("resourceVersion") not in (None, "", was["resourceVersion"]):
            raise conflict(resource, was["name"], MODIFIED)
        if self.settings is None:
            new = old | {"status": value.get("status")} if subresource == "status" else value
            new["metadata"]["resourceVersion"] = was["resourceVersion"]
            if manager:
                managed_fields.note(old, new, manager, subresource)
            return self.storage.replace(resource, new)
        for field in _SET_BY_SERVER:
            metadata.pop(field, None)
            if field in was:
                metadata[field] = was[field]
        metadata["resourceVersion"] = was["resourceVersion"]
        new = self._changed(resource, old, value, subresource)
        metadata = new["metadata"]
        is_deleting = "deletionTimestamp" in was
        if is_deleting and not set(metadata.get("finalizers") or ()) <= set(was.get("finalizers") or ()):
            raise invalid(resource, was["name"], "metadata.finalizers: Forbidden: no new finalizers")
        if "generation" in was and new.get("spec") != old.get("spec"):
            new["metadata"] = metadata = metadata | {"generation": was["generation"] + 1}
        for field in ("finalizers", "labels", "annotations", "ownerReferences"):
            if not metadata.get(field, True):
                del metadata[field]
        if is_deleting and not metadata.get("finalizers") and was.get("deletionGracePeriodSeconds") == 0:
            self._remove(resource, old)
            return new
        if managed is not None:
            new["metadata"] = metadata = metadata | {"managedFields": managed}
        if new == old:
            return old
        if manager:
            new["metadata"] = dict(metadata)
            managed_fields.note(old, new, manager, subresource)
        size_rules.check_object(resource, new)
        stored = self.storage.replace(resource, new)
        if resource == NAMESPACES and is_deleting:
            self._finish(was["name"])
        return stored

    def _changed(self, resource: Resource, old: Object, value: Object, subresource: str) -> Object:
        """What an update makes of an object."""
        match subresource:
            case "status":
                metadata = value["metadata"] if resource == PODS else old["metadata"]
                return old | {"metadata": metadata, "status": value.get("status") or {}}
            case "ephemeralcontainers":
                return pod_rules.with_ephemeral_containers(old, value)
            case "resize":
                return pod_rules.with_resources(old, value)
            case "finalize":
                return old | {"spec": value.get("spec", {})}
        if self._takes_status(resource):
            value.pop("status", None)
            if "status" in old:
                value["status"] = old["status"]
        if resource == PODS:
            pod_rules.check_update(old, value)
        elif resource == SERVICES:
            self._addresses.default(value, old)
        elif resource == NAMESPACES:
            value["spec"] = old["spec"]
        return value

    def _complete(self, resource: Resource, value: Object) -> None:
        """Set the defaults of a new object."""
        metadata = value["metadata"]
        if self._takes_status(resource) and resource.plural != "nodes":
            value.pop("status", None)
            if resource.plural in _FIRST_STATUS:
                value["status"] = copied(_FIRST_STATUS[resource.plural])
        if resource == PODS:
            pod_rules.complete(value)
            if value["spec"].get("schedulingGates"):
                value["status"] = pod_rules.gated(value, self._now())
        elif resource == SERVICES:
            self._addresses.default(value, None)
        elif resource == NAMESPACES:
            value["spec"] = {"finalizers": ["kubernetes"]}
            labels = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
            metadata["labels"] = labels

    def _takes_status(self, resource: Resource) -> bool:
        if resource.plural in _WITH_STATUS:
            return True
        return self.settings is not None and (
            resource.plural in self.settings.with_status or self._takes_defined_status(resource)
        )

    def _takes_defined_status(self, resource: Resource) -> bool:
        """Whether a CustomResourceDefinition has the subresource."""
        return any(
            each["name"] == resource.version and "status" in (each.get("subresources") or {})
            for each in self._definition(resource).get("versions") or []
        )

    def _definition(self, resource: Resource) -> Object:
        """The spec of a resource's CustomResourceDefinition; empty without one."""
        name = f"{resource.plural}.{resource.group}"
        found = self.storage.peek(_CUSTOM_RESOURCE_DEFINITIONS, "", name)
        return {} if found is None else found["spec"]

    def scoped(self, resource: Resource) -> Resource:
        """The resource with the scope that its CustomResourceDefinition has, which no path has."""
        if resource.is_namespaced and self._definition(resource).get("scope") == "Cluster":
            return replace(resource, is_namespaced=False)
        return resource

    def _remove(self, resource: Resource, old: Object) -> Object:
        namespace, name = _key(old)
        if resource == SERVICES:
            self._addresses.free(old.get("spec", {}))
        removed = self.storage.delete(resource, namespace, name)
        if resource == PODS:
            removed["metadata"]["deletionGracePeriodSeconds"] = 0
            removed["metadata"].setdefault("deletionTimestamp", self._now())
        if namespace:
            self._finish(namespace)
        return removed

    def _now(self) -> str:
        return at(self._clock())

    # ---- namespaces

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Raise StatusError where nothing can be made in a namespace."""
        found = self.storage.peek(NAMESPACES, "", namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            message = f'{resource} "{name}" is forbidden: {why}'
            raise StatusError(
                403, "Forbidden", message, cause="NamespaceTerminating", kind=resource.plural, name=name
            )

    def _fill(self, namespace: str, root_ca_pem: str) -> None:
        account: Object = {"kind": "ServiceAccount", "apiVersion": "v1"}
        metadata = {"name": "default", "namespace": namespace}
        self.create(token_requests.SERVICE_ACCOUNTS, account | {"metadata": metadata})
        root_ca: Object = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"ca.crt": root_ca_pem}}
        metadata = {"name": "kube-root-ca.crt", "namespace": namespace}
        self.create(CONFIG_MAPS, root_ca | {"metadata": metadata})

    def _end_namespace(self, namespace: Object) -> Object:
        metadata, name = namespace["metadata"], namespace["metadata"]["name"]
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = self._now()
            status = namespace.get("status", {}) | {"phase": "Terminating"}
            namespace = self.storage.replace(NAMESPACES, namespace | {"status": status})
            if self.settings is not None and self.settings.has_controllers:
                self.empty(name)
        return namespace

    def empty(self, namespace: str) -> None:
        """Delete what is in a namespace, as the namespace controller does, and the namespace after it."""
        for resource, name in self.storage.contents(namespace):
            if self.storage.has(resource, namespace, name):
                self.delete(resource, namespace, name)
        self._finish(namespace)

    def _finish(self, namespace: str) -> None:
        """Remove a namespace that is being deleted once nothing is in it."""
        if self.settings is None or not self.settings.has_controllers:
            return
        found = self.storage.peek(NAMESPACES, "", namespace)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return
        if self.storage.is_empty(namespace) and not found["metadata"].get("finalizers"):
            self.storage.delete(NAMESPACES, "", namespace)


def _has_generation(resource: Resource, value: Object) -> bool:
    """Whether the server counts the changes of the spec; it does so for few kinds of the core group."""
    return "spec" in value and (bool(resource.group) or resource == PODS)


def _key(value: Object) -> tuple[str, str]:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]
