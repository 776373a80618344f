# SPDX-License-Identifier: Apache-2.0
"""Tenants cannot choose objects that skip the admission webhooks of the super cluster.

Labels of namespaces and pods may come down from tenants; a syncer decides which. The API server writes one
label itself, at each creation and update of a Namespace.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import examples

_SAFE_KEY = "kubernetes.io/metadata.name"
_KINDS = ("Policy", "PolicyBinding", "WebhookConfiguration")


def _selectors(value: Any) -> Iterator[Any]:
    """Everything below `value` by which admission leaves objects out."""
    if isinstance(value, list):
        for each in value:
            yield from _selectors(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in ("namespaceSelector", "objectSelector"):
                yield each
            else:
                yield from _selectors(each)


def _manifests() -> Iterator[tuple[Path, Any]]:
    for path in sorted((examples.ROOT / "packaging").rglob("*.yaml")):
        if "templates" in path.parts:
            continue  # of the chart, which reads the others
        for value in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(value, dict) and str(value.get("kind")).endswith(_KINDS):
                yield path, value


@pytest.mark.parametrize(("path", "value"), [pytest.param(*each, id=each[0].name) for each in _manifests()])
def test_admission_leaves_out_by_a_namespaces_name_alone(path: Path, value: Any) -> None:
    for selector in _selectors(value):
        assert selector.keys() == {"matchExpressions"}, path
        assert {each["key"] for each in selector["matchExpressions"]} == {_SAFE_KEY}, path


def test_there_is_such_a_manifest() -> None:
    assert any(list(_selectors(value)) for _, value in _manifests())
