# SPDX-License-Identifier: Apache-2.0
"""Environment of containers: service variables, and downward API references to what differs in super. Pure.

The kubelet of the super cluster would give its own `kubernetes` Service to each container. Explicit variables
take precedence over the kubelet's, so each container gets the tenant's explicitly. They come before `envFrom`
too, behind which a kubelet puts its own: a container with `envFrom` has the other Services' from the kubelet,
which makes them of the same Services.
"""

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from syncer.core.objects import Object, annotations_of, labels_of, name_of, namespace_of, uid_of
from syncer.core.unknown import if_known
from syncer.core.view import View
from syncer.kinds.configmap import ROOT_CA, TENANT_ROOT_CA
from syncer.kinds.pod.metadata import MetadataRules, split_field_path

API_SERVICE = ("default", "kubernetes")
"""(namespace, name) of the Service of a tenant's API server."""

API_HOSTNAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")

_HEADLESS = ("", "None")

# The variables of a Service with one port have some 250 characters.
_FEW_CHARS = 4_096

MAX_VALUE_CHARS = 512 << 10
"""Of labels and annotations in variables: a third of the largest object that etcd takes."""


def cluster_ip(service: Object | None) -> str:
    """The cluster IP of a Service; empty if it has none, or none yet."""
    found = str(((service or {}).get("spec") or {}).get("clusterIP") or "")
    return "" if found in _HEADLESS else found


def service_variables(services: Iterable[Object], most: int) -> dict[str, str]:
    """The variables that a kubelet makes for Services (docker-link style included).

    It ends once it has more than `most`.
    """
    found: dict[str, str] = {}
    for service in services:
        address = cluster_ip(service)
        if not address:
            continue
        prefix = _variable(name_of(service))
        host = f"[{address}]" if ":" in address else address
        found[f"{prefix}_SERVICE_HOST"] = address
        for index, port in enumerate(service["spec"].get("ports") or ()):
            if len(found) > most:
                return found
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


def pod_variables(api_service: Object, own_services: Iterable[Object], most: int) -> dict[str, Object]:
    """The entries of `env` for a pod, sorted, by name. `own_services` is empty without service links.

    Of more than `most` only those of the API server. The kubelet adds the others from the same Services.

    The API server is called by its name, which its certificate has and `/etc/hosts` resolves.
    """
    own = service_variables(own_services, most)
    found = service_variables([api_service], most)
    if len(found | own) <= most:
        found = own | found
    found["KUBERNETES_SERVICE_HOST"] = API_HOSTNAMES[0]
    return {name: {"name": name, "value": found[name]} for name in sorted(found)}


def is_of_api(name: str) -> bool:
    """Whether a variable is one of the API server's Service, of which the kubelet has another."""
    return name.startswith("KUBERNETES_")


class SourceKeys:
    """What `envFrom` gives to containers, by the tenant's ConfigMaps and Secrets as they are now.

    Each of them is looked up once a pod. Only keys are kept that may give a variable one of the `names`: a
    pod may refer to as many sources as it has containers, and each may have as many keys as etcd takes.
    """

    __slots__ = ("_ends", "_found", "_longest", "_names", "_namespace", "_sorted_ends", "_view")

    def __init__(self, namespace: str, view: View, names: Collection[str]) -> None:
        self._namespace = namespace
        self._view = view
        self._names = names
        self._longest = max(map(len, names), default=0)
        self._ends: frozenset[str] = frozenset()
        self._sorted_ends: list[str] = []
        self._found: dict[tuple[str, str], frozenset[str]] = {}

    def _find_ends(self) -> None:
        """What a key must be. All ends of many names would be more than what they keep out."""
        if sum(map(len, self._names)) <= _FEW_CHARS:
            self._ends = frozenset(name[at:] for name in self._names for at in range(len(name)))
        else:
            self._sorted_ends = sorted(name[::-1] for name in self._names)

    def given(self, references: Iterable[Object]) -> frozenset[str]:
        """Those of the names that these references give a variable.

        The work is no product of references and names: of each source it is what has less, its keys with
        each prefix, or the names divided at the prefixes' lengths.
        """
        names = self._names
        prefixes: dict[tuple[str, str], set[str]] = {}
        for each in references:
            prefix = str(each.get("prefix") or "")
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                reference = each.get(field)
                if isinstance(reference, dict) and len(prefix) < self._longest:
                    prefixes.setdefault((kind, str(reference.get("name", ""))), set()).add(prefix)
        found: set[str] = set()
        for (kind, source), own_prefixes in prefixes.items():
            own = self._keys_of(kind, source)
            if len(own) * len(own_prefixes) <= len(names):
                made = (prefix + key for prefix in own_prefixes for key in own)
                found.update(name for name in made if name in names)
                continue
            sizes = {len(prefix) for prefix in own_prefixes}
            found.update(
                name for name in names for at in sizes if name[:at] in own_prefixes and name[at:] in own
            )
        return frozenset(found)

    def _keys_of(self, kind: str, name: str) -> frozenset[str]:
        where = (kind, name)
        if where not in self._found:
            if not self._found:  # most pods have no `envFrom`
                self._find_ends()
            keys = if_known(self._view.tenant_keys(kind, self._namespace, name)) or ()
            self._found[where] = (
                frozenset(filter(self._is_end, keys)) if self._sorted_ends else self._ends.intersection(keys)
            )
        return self._found[where]

    def _is_end(self, key: str) -> bool:
        """Whether one of the names ends with this key."""
        if len(key) > self._longest:
            return False
        backwards = key[::-1]
        at = bisect.bisect_left(self._sorted_ends, backwards)
        return at < len(self._sorted_ends) and self._sorted_ends[at].startswith(backwards)


class EnvTranslator:
    """Makes the environment of one pod's containers.

    `has_too_large`: the values of labels and annotations in it have more than MAX_VALUE_CHARS together, and
    some are left out. Each entry may name one that is as large as the pod.
    """

    __slots__ = (
        "_annotations",
        "_labels",
        "_left",
        "_literals",
        "_namespace",
        "_of_api",
        "_rules",
        "_sources",
        "_uid",
        "_variables",
        "has_too_large",
    )

    def __init__(
        self, tenant: Object, variables: dict[str, Object], rules: MetadataRules, view: View
    ) -> None:
        self._namespace = namespace_of(tenant)
        self._uid = uid_of(tenant)
        self._labels: Mapping[str, str] = labels_of(tenant)
        self._annotations: Mapping[str, str] = annotations_of(tenant)
        self._rules = rules
        self._variables = variables
        # Of the API server's Service the kubelet has other values: those of the super cluster.
        self._of_api = {name: each for name, each in variables.items() if is_of_api(name)}
        self._sources = SourceKeys(self._namespace, view, self._of_api)
        self._literals: dict[str, str | None] = {}
        self._left = MAX_VALUE_CHARS
        self.has_too_large = False

    def translate(self, container: Object) -> None:
        """Change one container, of any of the three lists."""
        own: list[Any] = container.get("env") or []
        for index, entry in enumerate(own):
            if isinstance(source := entry.get("valueFrom"), dict):
                own[index] = self._reference(entry, source)
        variables = self._variables
        if references := container.get("envFrom"):
            given = self._sources.given(references)
            variables = {name: each for name, each in self._of_api.items() if name not in given}
            for reference in references:
                _rename_root_ca(reference.get("configMapRef"))
        if not own:
            container["env"] = list(variables.values())
            return
        # A reference `$(NAME)` is expanded from entries before it and from `envFrom`; else from the kubelet's
        # own variables, in which `kubernetes` is the super cluster's.
        needed, defined = set[str](), set[str]()
        for entry in own:
            needed.update(name for name in _references(entry.get("value")) if name not in defined)
            defined.add(str(entry.get("name")))
        first = [
            each
            for name, each in variables.items()
            if name in needed and (name not in defined or is_of_api(name))
        ]
        injected = [each for name, each in variables.items() if name not in defined and name not in needed]
        container["env"] = [*first, *own, *injected]

    def _reference(self, entry: Object, source: Object) -> Object:
        _rename_root_ca(source.get("configMapKeyRef"))
        field = source.get("fieldRef")
        if not isinstance(field, dict):
            return entry
        path = str(field.get("fieldPath", ""))
        if path not in self._literals:
            self._literals[path] = self._literal(path)
        literal = self._literals[path]
        if literal is None:
            return entry
        self._left -= len(literal)
        if self._left < 0:
            self.has_too_large = True
            literal = ""
        return {"name": entry["name"], "value": literal}

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


def _references(value: Any) -> Iterator[str]:
    """The names in `$(NAME)` of a value, and some that are escaped."""
    if isinstance(value, str):
        for part in value.split("$(")[1:]:
            yield part.partition(")")[0]


def _escaped(value: str) -> str:
    """A literal that is not expanded: the kubelet expands `$(NAME)` in `value`, not in what fields give."""
    return value.replace("$", "$$")


def _rename_root_ca(reference: Any) -> None:
    if isinstance(reference, dict) and reference.get("name") == ROOT_CA:
        reference["name"] = TENANT_ROOT_CA
