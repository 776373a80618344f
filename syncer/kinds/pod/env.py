# SPDX-License-Identifier: Apache-2.0
"""Environment of containers: service variables, and downward API references to what differs in super. Pure.

The kubelet of the super cluster would give its own `kubernetes` Service to each container. Explicit variables
take precedence over the kubelet's, so each container gets all of the tenant's explicitly.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from syncer.core.objects import Object, annotations_of, labels_of, name_of, namespace_of, uid_of
from syncer.kinds.configmap import ROOT_CA, TENANT_ROOT_CA
from syncer.kinds.pod.metadata import MetadataRules, split_field_path

API_SERVICE = ("default", "kubernetes")
"""(namespace, name) of the Service of a tenant's API server."""

API_HOSTNAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")

_HEADLESS = ("", "None")


def cluster_ip(service: Object | None) -> str:
    """The cluster IP of a Service; empty if it has none, or none yet."""
    found = str(((service or {}).get("spec") or {}).get("clusterIP") or "")
    return "" if found in _HEADLESS else found


def service_variables(services: Iterable[Object]) -> dict[str, str]:
    """The variables that a kubelet makes for Services (docker-link style included)."""
    found: dict[str, str] = {}
    for service in services:
        address = cluster_ip(service)
        if not address:
            continue
        prefix = _variable(name_of(service))
        host = f"[{address}]" if ":" in address else address
        found[f"{prefix}_SERVICE_HOST"] = address
        for index, port in enumerate(service["spec"].get("ports") or ()):
            number, protocol = str(port.get("port")), str(port.get("protocol") or "TCP")
            url = f"{protocol.lower()}://{host}:{number}"
            if index == 0:
                found[f"{prefix}_SERVICE_PORT"] = number
                found[f"{prefix}_PORT"] = url
            if name := port.get("name"):
                found[f"{prefix}_SERVICE_PORT_{_variable(str(name))}"] = number
            link = f"{prefix}_PORT_{number}_{protocol.upper()}"
            found[link] = url
            found[f"{link}_PROTO"] = protocol.lower()
            found[f"{link}_PORT"] = number
            found[f"{link}_ADDR"] = address
    return found


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def pod_variables(api_service: Object, own_services: Iterable[Object]) -> list[Object]:
    """The entries of `env` for a pod, sorted by name. `own_services` is empty without service links.

    The API server is called by its name, which its certificate has and `/etc/hosts` resolves.
    """
    found = service_variables(own_services) | service_variables([api_service])
    found["KUBERNETES_SERVICE_HOST"] = API_HOSTNAMES[0]
    return [{"name": name, "value": found[name]} for name in sorted(found)]


class EnvTranslator:
    """Makes the environment of one pod's containers."""

    __slots__ = ("_annotations", "_labels", "_namespace", "_rules", "_uid", "_variables")

    def __init__(self, tenant: Object, variables: list[Object], rules: MetadataRules) -> None:
        self._namespace = namespace_of(tenant)
        self._uid = uid_of(tenant)
        self._labels: Mapping[str, str] = labels_of(tenant)
        self._annotations: Mapping[str, str] = annotations_of(tenant)
        self._rules = rules
        self._variables = variables

    def translate(self, container: Object) -> None:
        """Change one container, of any of the three lists."""
        own: list[Any] = container.get("env") or []
        names = set()
        for index, entry in enumerate(own):
            names.add(entry.get("name"))
            if isinstance(source := entry.get("valueFrom"), dict):
                own[index] = self._reference(entry, source)
        for reference in container.get("envFrom") or ():
            _rename_root_ca(reference.get("configMapRef"))
        injected = [entry for entry in self._variables if entry["name"] not in names]
        first: list[Object] = []
        values = [value for entry in own if isinstance(value := entry.get("value"), str) and "$(" in value]
        if values:
            # A reference `$(NAME)` is expanded from entries before it; else from the kubelet's own variables,
            # in which `kubernetes` is the super cluster's.
            first = [each for each in injected if any(f"$({each['name']})" in value for value in values)]
            injected = [each for each in injected if each not in first]
        container["env"] = [*first, *own, *injected]

    def _reference(self, entry: Object, source: Object) -> Object:
        _rename_root_ca(source.get("configMapKeyRef"))
        field = source.get("fieldRef")
        literal = self._literal(str(field.get("fieldPath", ""))) if isinstance(field, dict) else None
        return entry if literal is None else {"name": entry["name"], "value": literal}

    def _literal(self, path: str) -> str | None:
        """The tenant's value of a field that the super pod has otherwise; None for one that is the same."""
        if path == "metadata.namespace":
            return self._namespace
        if path == "metadata.uid":
            return self._uid
        field, key = split_field_path(path)
        if field == "metadata.labels" and not self._rules.label_passes(key):
            return _escaped(self._labels.get(key, ""))
        if field == "metadata.annotations" and not self._rules.annotation_passes(key):
            return _escaped(self._annotations.get(key, ""))
        return None


def _escaped(value: str) -> str:
    """A literal that is not expanded: the kubelet expands `$(NAME)` in `value`, not in what fields give."""
    return value.replace("$", "$$")


def _rename_root_ca(reference: Any) -> None:
    if isinstance(reference, dict) and reference.get("name") == ROOT_CA:
        reference["name"] = TENANT_ROOT_CA
