#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the schemas beside this file from the OpenAPI documents in the source of Kubernetes.

    python3 -m tests.kube_schemas.generate [GO MODULE CACHE]

The module k8s.io/kubernetes is in Go's module cache once `python3 tests/k8s/build.py` has run.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.k8s.build import KUBERNETES_VERSION

OUTPUT = Path(__file__).parent / "schemas.json"

# The kinds that some daemon reads or writes, and the documents that have them.
KINDS = {
    "api__v1": (
        "ConfigMap",
        "Endpoints",
        "Event",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
    ),
    "apis__apps__v1": ("Deployment", "StatefulSet"),
    "apis__batch__v1": ("Job",),
    "apis__discovery.k8s.io__v1": ("EndpointSlice",),
    "apis__networking.k8s.io__v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "apis__node.k8s.io__v1": ("RuntimeClass",),
    "apis__policy__v1": ("PodDisruptionBudget",),
    "apis__scheduling.k8s.io__v1": ("PriorityClass",),
    "apis__storage.k8s.io__v1": ("StorageClass",),
    "apis__apiextensions.k8s.io__v1": ("CustomResourceDefinition",),
}


def module_path(cache: Path) -> Path:
    """Where the source of Kubernetes is in a module cache."""
    return cache / f"k8s.io/kubernetes@{KUBERNETES_VERSION}/api/openapi-spec/v3"


def made(source: Path) -> str:
    """The text of the file, from the directory of OpenAPI documents."""
    kinds: dict[str, str] = {}
    types: dict[str, Any] = {}
    for document, names in KINDS.items():
        components = json.loads((source / f"{document}_openapi.json").read_text())["components"]["schemas"]
        for name, schema in components.items():
            for gvk in schema.get("x-kubernetes-group-version-kind") or ():
                if gvk["kind"] in names and _is_of(document, gvk):
                    kinds[gvk["kind"]] = _short(name)
                    _collect(_short(name), name, components, types)
    missing = {each for names in KINDS.values() for each in names} - kinds.keys()
    assert not missing, f"no schema of {missing}"
    found = {"version": KUBERNETES_VERSION, "kinds": dict(sorted(kinds.items())), "types": types}
    return json.dumps(found | {"types": dict(sorted(types.items()))}, indent=1) + "\n"


def _is_of(document: str, gvk: dict[str, str]) -> bool:
    _, *group, version = document.split("__")
    return gvk["version"] == version and gvk["group"] == "".join(group)


def _collect(short: str, name: str, components: dict[str, Any], types: dict[str, Any]) -> None:
    if short in types:
        return
    properties = components[name].get("properties")
    if properties is None:
        types[short] = {}
        return
    fields = types[short] = {}
    for field, schema in sorted(properties.items()):
        fields[field] = _type(schema, components, types)


def _type(schema: dict[str, Any], components: dict[str, Any], types: dict[str, Any]) -> Any:
    """`string`, `integer`, ..., `any`; `{"list": T}`, `{"map": T}`, `{"object": NAME}`."""
    for part in schema.get("allOf") or ():
        schema = schema | part
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        below = components[name]
        if "properties" not in below:
            # A type of its own in Go and one value in JSON: a quantity, a time, a number or a string.
            return _SCALARS.get(_short(name), below.get("type") or "any")
        _collect(_short(name), name, components, types)
        return {"object": _short(name)}
    match schema.get("type"):
        case "array":
            return {"list": _type(schema["items"], components, types)}
        case "object" if "additionalProperties" in schema:
            return {"map": _type(schema["additionalProperties"], components, types)}
        case "object" | None:
            return "any"
        case scalar:
            return schema.get("format") if schema.get("format") == "byte" else scalar


_SCALARS = {"Quantity": "quantity", "Time": "time", "MicroTime": "time", "IntOrString": "intOrString"}


def _short(name: str) -> str:
    """Without the prefix that all have; types of apimachinery by their own name alone."""
    short = name.removeprefix("io.k8s.").removeprefix("api.")
    return short.rpartition(".")[2] if short.startswith("apimachinery.") else short


if __name__ == "__main__":
    cache = (
        sys.argv[1]
        if len(sys.argv) > 1
        else subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout
    )
    OUTPUT.write_text(made(module_path(Path(cache.strip()))))
