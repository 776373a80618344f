# SPDX-License-Identifier: Apache-2.0
"""Whether an object has only fields that its kind has, with values of their types."""

import json
import re
from functools import cache
from typing import Any

from tests.kube_schemas.generate import OUTPUT

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[MGTPE]|[KMGTPE]i|e[0-9]+)?")
_PLAIN = {
    "string": lambda value: isinstance(value, str),
    "byte": lambda value: isinstance(value, str),
    "time": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "intOrString": lambda value: isinstance(value, int | str) and not isinstance(value, bool),
    "quantity": lambda value: isinstance(value, str) and _QUANTITY.fullmatch(value) is not None,
}


@cache
def _schemas() -> Any:
    return json.loads(OUTPUT.read_text())


def faults(value: dict[str, Any]) -> list[str]:
    """Where an object differs from the schema of its kind; `Kind.field: what`."""
    kind = value["kind"]
    return list(_faults(value, {"object": _schemas()["kinds"][kind]}, kind))


def _faults(value: Any, schema: Any, where: str) -> list[str]:
    if isinstance(schema, str):
        is_right = _PLAIN.get(schema, lambda _: True)(value)
        return [] if is_right else [f"{where}: {value!r} is no {schema}"]
    ((form, below),) = schema.items()
    if form == "list":
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [fault for each in value for fault in _faults(each, below, f"{where}[]")]
    if not isinstance(value, dict):
        return [f"{where}: no object"]
    if form == "map":
        return [fault for key, each in value.items() for fault in _faults(each, below, f"{where}[{key}]")]
    fields = _schemas()["types"][below]
    return [
        fault
        for key, each in value.items()
        for fault in (
            _faults(each, fields[key], f"{where}.{key}") if key in fields else [f"{where}.{key}: unknown"]
        )
    ]
