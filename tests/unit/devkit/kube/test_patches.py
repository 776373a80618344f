# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest

from devkit.kube.patches import JSON, MERGE, STRATEGIC, patched
from devkit.kube.storage import StatusError

META = {"metadata": {"name": "a"}}


def container(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


@pytest.mark.parametrize(
    ("kind", "before", "patch", "after"),
    [
        (MERGE, {"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        (MERGE, {"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (MERGE, {"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        (JSON, {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        (JSON, {"a": [1]}, [{"op": "add", "path": "/a/0", "value": 2}], {"a": [2, 1]}),
        (JSON, {"a/b": {"~": 1}}, [{"op": "remove", "path": "/a~1b/~0"}], {"a/b": {}}),
        (JSON, {"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        (JSON, {"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        (JSON, {"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        (
            STRATEGIC,
            {"containers": [container("x", image="1"), container("y")]},
            {"containers": [container("y", image="2"), container("z")]},
            {"containers": [container("x", image="1"), container("y", image="2"), container("z")]},
        ),
        (
            STRATEGIC,
            {"containers": [container("x", env=[{"name": "A", "value": "1"}])]},
            {"containers": [container("x", env=[{"name": "A", "value": "2"}, {"name": "B"}])]},
            {"containers": [container("x", env=[{"name": "A", "value": "2"}, {"name": "B"}])]},
        ),
        (
            STRATEGIC,
            {"conditions": [{"type": "A"}, {"type": "B"}]},
            {"conditions": [{"type": "A", "$patch": "delete"}]},
            {"conditions": [{"type": "B"}]},
        ),
        (
            STRATEGIC,
            {"conditions": [{"type": "A"}]},
            {"conditions": [{"$patch": "replace"}, {"type": "B"}]},
            {"conditions": [{"type": "B"}]},
        ),
        (
            STRATEGIC,
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
        ),
        (
            STRATEGIC,
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
            {"finalizers": ["b", "c"]},
        ),
        (STRATEGIC, {"a": {"b": 1}, "c": 1}, {"a": {"$patch": "delete"}, "c": None}, {}),
        (STRATEGIC, {"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 1}}, {"a": {"c": 1}}),
        (
            STRATEGIC,
            {"ports": [{"port": 80}]},
            {"$setElementOrder/ports": [{"port": 80}], "ports": [{"port": 80, "nodePort": 1}, {"port": 81}]},
            {"ports": [{"port": 80, "nodePort": 1}, {"port": 81}]},
        ),
    ],
)
def test_patches_change_the_object(kind: str, before: Any, patch: Any, after: Any) -> None:
    value = META | before
    assert patched(kind, value, msgspec.json.encode(patch)) == META | after
    assert value == META | before


@pytest.mark.parametrize(
    ("code", "kind", "patch"),
    [
        (415, "application/apply-patch+yaml", {}),
        (400, MERGE, []),
        (400, JSON, {}),
        (422, JSON, [{"op": "test", "path": "/metadata/name", "value": "b"}]),
        (422, JSON, [{"op": "remove", "path": "/none"}]),
        (422, JSON, [{"op": "add", "path": "none", "value": 1}]),
        (422, JSON, [{"op": "sing", "path": "/metadata"}]),
        (422, JSON, [{"op": "add"}]),
        (422, JSON, [1]),
        (422, JSON, [{"op": "replace", "path": "", "value": []}]),
        (422, MERGE, {"metadata": None}),
        (400, STRATEGIC, {"containers": [{"image": "a"}]}),
    ],
)
def test_other_patches_are_refused(code: int, kind: str, patch: Any) -> None:
    with pytest.raises(StatusError) as caught:
        patched(kind, META, msgspec.json.encode(patch))
    assert caught.value.code == code
