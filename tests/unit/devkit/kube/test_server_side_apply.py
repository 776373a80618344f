# SPDX-License-Identifier: Apache-2.0
"""What tests/functional/kube/test_contract_of_applies.py, which a real API server passes too, leaves out."""

from typing import Any

import pytest

from devkit.kube.server_side_apply import applied, parsed
from devkit.kube.storage import Object, StatusError


def config(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **fields}


def entry(manager: str, operation: str, fields: Object, **more: str) -> Object:
    kind = {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    return {"manager": manager, "operation": operation, **kind, **more}


def test_a_first_apply_owns_all_that_it_has() -> None:
    after = applied(None, config(data={"a": "1"}, spec={"x": {}, "y": [1]}), "one", is_forced=False)
    fields: Object = {"f:data": {"f:a": {}}, "f:spec": {"f:x": {}, "f:y": {}}}
    managed = [entry("one", "Apply", fields)]
    assert after == config(data={"a": "1"}, spec={"x": {}, "y": [1]}) | {
        "metadata": {"name": "a", "managedFields": managed}
    }


def test_a_forced_apply_takes_fields_from_others() -> None:
    old = config(data={"a": "1", "b": "2"})
    old["metadata"]["managedFields"] = [entry("two", "Update", {"f:data": {"f:a": {}, "f:b": {}}})]
    with pytest.raises(StatusError, match="1 conflict"):
        applied(old, config(data={"a": "9", "b": "2"}), "one", is_forced=False)
    after = applied(old, config(data={"a": "9", "b": "2"}), "one", is_forced=True)
    assert after["metadata"]["managedFields"] == [
        entry("two", "Update", {"f:data": {"f:b": {}}}),
        entry("one", "Apply", {"f:data": {"f:a": {}, "f:b": {}}}),
    ]


def test_an_item_goes_with_what_the_server_set_in_it() -> None:
    before = applied(None, config(spec={"ports": [{"port": 80}, {"port": 81}]}), "one", is_forced=False)
    for port in before["spec"]["ports"]:
        port |= {"protocol": "TCP", "targetPort": port["port"]}
    after = applied(before, config(spec={"ports": [{"port": 81}]}), "one", is_forced=False)
    assert after["spec"]["ports"] == [{"port": 81, "protocol": "TCP", "targetPort": 81}]
    assert "spec" not in applied(after, config(), "one", is_forced=False)


def test_the_other_part_of_an_object_is_another_apply() -> None:
    before = applied(None, config(spec={"x": 1}), "one", is_forced=False)
    after = applied(before, config(status={"y": 2}), "one", is_forced=False, subresource="status")
    assert (after["spec"], after["status"]) == ({"x": 1}, {"y": 2})
    assert after["metadata"]["managedFields"] == [
        entry("one", "Apply", {"f:spec": {"f:x": {}}}),
        entry("one", "Apply", {"f:status": {"f:y": {}}}, subresource="status"),
    ]


@pytest.mark.parametrize("body", [b"[]", b"{}", b"{: }", b"\xff", b"metadata: 3"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(StatusError, match="400 BadRequest"):
        parsed(body)


def test_yaml_is_applied_as_json_is() -> None:
    text = b"kind: ConfigMap\nmetadata: {name: a}\n"
    assert parsed(text) == parsed(b'{"kind": "ConfigMap", "metadata": {"name": "a"}}')
