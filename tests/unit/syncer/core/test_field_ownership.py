# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.field_ownership import (
    foreign_fields,
    foreign_keys,
    is_foreign_key,
    note_foreign_fields,
    with_foreign_fields,
)
from syncer.core.objects import FOREIGN_FIELDS, Object, merge_patch, without_server_fields


def entry(manager: str, fields: Object, **more: Any) -> Object:
    return {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def f(**fields: Any) -> Object:
    return {f"f:{name}": each for name, each in fields.items()}


PORT = 'k:{"port":80,"protocol":"TCP"}'
# As kube-apiserver 1.34 records it: what it allocates (addresses, node ports) is in nobody's entry.
SERVICE: Object = {
    "metadata": {
        "name": "s",
        "labels": {"own": "x", "implementation": "kube-vip"},
        "annotations": {"note": "own"},
        "managedFields": [
            entry(
                "vc-syncer",
                f(
                    metadata=f(labels={".": {}, "f:own": {}}, annotations={".": {}, "f:note": {}}),
                    spec=f(
                        ports={".": {}, PORT: {".": {}, **f(port={}, protocol={}, targetPort={})}},
                        selector={},
                        type={},
                    ),
                ),
            ),
            entry("kube-vip", f(metadata=f(labels=f(implementation={})), spec=f(loadBalancerIP={}))),
            entry("kube-vip", f(status=f(loadBalancer=f(ingress={}))), subresource="status"),
        ],
    },
    "spec": {
        "clusterIP": "10.96.0.9",
        "loadBalancerIP": "192.0.2.7",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}],
        "selector": {"app": "a"},
        "type": "LoadBalancer",
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
}


def test_what_no_entry_of_ours_has_is_foreign() -> None:
    found = foreign_fields(SERVICE, SERVICE["metadata"]["managedFields"])
    assert found == {
        "metadata": {"labels": {"implementation": {}}},
        "spec": {
            "clusterIP": {},
            "loadBalancerIP": {},
            "ports": {'{"port":80,"protocol":"TCP"}': {"nodePort": {}}},
        },
    }


@pytest.mark.parametrize("manager", ["vc-syncer", "syncer", "resource-syncer"])
def test_upstreams_syncer_is_ours_too(manager: str) -> None:
    value = {"metadata": {"labels": {"a": "x"}}, "data": {"k": "v"}}
    fields = f(metadata=f(labels=f(a={})), data=f(k={}))
    assert foreign_fields(value, [entry(manager, fields)]) is None


def test_several_entries_of_ours_are_one() -> None:
    value = {"metadata": {}, "data": {"a": "1", "b": "2", "c": "3"}}
    managed = [entry("syncer", f(data=f(a={}))), entry("vc-syncer", f(data=f(b={})))]
    assert foreign_fields(value, managed) == {"data": {"c": {}}}


@pytest.mark.parametrize("managed", [None, [], [{}], "x", [{"fieldsV1": 3}]])
def test_without_a_record_nothing_is_known_to_be_ours(managed: Any) -> None:
    value: Object = {"metadata": {"labels": {"a": "x"}, "managedFields": managed}, "data": {"k": "v"}}
    note_foreign_fields(value)
    assert is_foreign_key(value, "labels", "a")
    wanted = with_foreign_fields({"data": {}}, {"data": {"k": "v"}}, value)
    assert merge_patch({"data": {"k": "v"}}, wanted) == {}


_KEYS = st.sampled_from(["a", "b", "c", "a.b/c"])
_NAMES: st.SearchStrategy[Object] = st.dictionaries(
    _KEYS.map("f:{}".format) | st.just("."), st.just({}), max_size=4
)
_RECORDED = st.fixed_dictionaries(
    {}, optional={"f:labels": _NAMES, "f:annotations": _NAMES, "f:finalizers": st.just({".": {}})}
)
_FIELDS = st.fixed_dictionaries(
    {}, optional={"f:metadata": _RECORDED, "f:spec": st.just({"f:nodeName": {}}), "f:status": st.just({})}
)
_ENTRIES = st.fixed_dictionaries(
    {"manager": st.sampled_from(["vc-syncer", "syncer", "kubelet", "injector"])},
    optional={"fieldsV1": _FIELDS, "subresource": st.sampled_from(["", "status"]), "time": st.just("t")},
)


@given(
    st.none() | st.lists(_ENTRIES, max_size=4),
    st.none() | st.dictionaries(_KEYS, st.just("v"), max_size=4),
    st.none() | st.dictionaries(_KEYS, st.just("v"), max_size=4),
)
def test_foreign_keys_are_the_foreign_fields_of_metadata(
    managed: list[Object] | None, labels: Object | None, annotations: Object | None
) -> None:
    value: Object = {"metadata": {"labels": labels, "annotations": annotations}}
    encoded = msgspec.Raw(b"" if managed is None else msgspec.json.encode(managed))
    found = foreign_keys(encoded, labels or {}, annotations or {})
    assert found == foreign_fields(value, managed)


@pytest.mark.parametrize("managed", [[{"manager": 1}], {}, [{"manager": "syncer", "fieldsV1": [1]}], None])
def test_keys_without_a_record_are_not_known_to_be_ours(managed: Any) -> None:
    assert foreign_keys(msgspec.Raw(msgspec.json.encode(managed)), {"a": "v"}, {}) == {}


def test_nothing_is_noted_where_all_is_ours() -> None:
    value: Object = {"metadata": {"managedFields": [entry("vc-syncer", f(data={}))]}, "data": {}}
    assert note_foreign_fields(value) == {"metadata": {}, "data": {}}
    assert not is_foreign_key(value, "labels", "a")


def test_the_note_goes_to_no_api_server() -> None:
    value = note_foreign_fields(copy.deepcopy(SERVICE))
    assert FOREIGN_FIELDS in value["metadata"]
    assert without_server_fields(value)["metadata"].keys() == {"name", "labels", "annotations"}


def _patch(desired: Object) -> Object:
    found = note_foreign_fields(copy.deepcopy(SERVICE))
    actual = {"spec": found["spec"]}
    patch: Object = merge_patch(actual, with_foreign_fields({"spec": desired}, actual, found))
    return patch


@pytest.mark.parametrize(
    ("desired", "patch"),
    [
        pytest.param(
            {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "selector": {"app": "a"}},
            {"type": None},
            id="ours ends, what others wrote stays",
        ),
        pytest.param(
            {
                "type": "LoadBalancer",
                "loadBalancerIP": "192.0.2.9",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 81}],
                "selector": {"app": "b"},
            },
            {
                "loadBalancerIP": "192.0.2.9",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 81, "nodePort": 30080}],
                "selector": {"app": "b"},
            },
            id="the tenant's value comes first",
        ),
        pytest.param(
            {"type": "LoadBalancer", "ports": [{"port": 81, "protocol": "TCP"}], "selector": {"app": "a"}},
            {"ports": [{"port": 81, "protocol": "TCP"}]},
            id="an item of ours ends whole",
        ),
    ],
)
def test_a_patch_takes_away_what_is_ours(desired: Object, patch: Object) -> None:
    assert _patch(desired) == {"spec": patch}


def test_items_that_others_added_stay_in_their_place() -> None:
    managed = [entry("vc-syncer", f(pulls={'k:{"name":"a"}': f(name={}), 'k:{"name":"c"}': f(name={})}))]
    actual = {"pulls": [{"name": "a"}, {"name": "theirs"}, {"name": "c"}]}
    found = note_foreign_fields({"metadata": {"managedFields": managed}, **actual})
    same = {"pulls": [{"name": "a"}, {"name": "c"}]}
    assert merge_patch(actual, with_foreign_fields(same, actual, found)) == {}
    fewer = {"pulls": [{"name": "c"}, {"name": "d"}]}
    assert merge_patch(actual, with_foreign_fields(fewer, actual, found)) == {
        "pulls": [{"name": "c"}, {"name": "d"}, {"name": "theirs"}]
    }
    assert merge_patch(actual, with_foreign_fields({}, actual, found)) == {"pulls": [{"name": "theirs"}]}


def test_values_of_a_set_have_owners() -> None:
    managed = [entry("vc-syncer", f(hosts={'v:"a"': {}, 'v:"b"': {}}))]
    actual = {"hosts": ["a", "b", "theirs"]}
    found = note_foreign_fields({"metadata": {"managedFields": managed}, **actual})
    assert merge_patch(actual, with_foreign_fields({"hosts": ["a"]}, actual, found)) == {
        "hosts": ["a", "theirs"]
    }


def test_a_map_that_was_empty_has_room_for_others() -> None:
    managed = [entry("vc-syncer", f(spec=f(config={}))), entry("other", f(spec=f(config=f(x={}))))]
    actual = {"spec": {"config": {"x": 1}}}
    found = note_foreign_fields({"metadata": {"managedFields": managed}, **actual})
    assert merge_patch(actual, with_foreign_fields({"spec": {"config": {}}}, actual, found)) == {}


def test_an_atomic_map_that_another_wrote_is_the_tenants_again() -> None:
    managed = [entry("vc-syncer", f(spec=f(type={}))), entry("other", f(spec=f(selector={})))]
    actual = {"spec": {"type": "ClusterIP", "selector": {"a": "x", "theirs": "y"}}}
    found = note_foreign_fields({"metadata": {"managedFields": managed}, **actual})
    own = {"spec": {"type": "ClusterIP", "selector": {"a": "x"}}}
    assert merge_patch(actual, with_foreign_fields(own, actual, found)) == {
        "spec": {"selector": {"theirs": None}}
    }


def test_deep_values_end_no_plan() -> None:
    tree: Object = {}
    value: Object = {"x": 1}
    for _ in range(200):
        tree, value = f(x=tree), {"x": value}
    managed = [entry("vc-syncer", f(spec=tree)), entry("other", f(spec=tree))]
    found = note_foreign_fields({"metadata": {"managedFields": managed}, "spec": value})
    assert FOREIGN_FIELDS not in found["metadata"]
