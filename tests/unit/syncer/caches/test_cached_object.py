# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemonkit.kube.watch import BoundedParser
from syncer.caches.cached_object import (
    MAX_PLANNED_VALUES,
    CachedObject,
    has_moved,
    is_verified,
    last_observed,
    parse,
    parse_super,
    parse_super_pod,
    parse_with_spec,
    parser_of,
)
from syncer.core.pair import Pair


def raw(**value: Any) -> bytes:
    return json.dumps(value).encode()


def cached(version: str, verified_with: str | None = None) -> CachedObject:
    found = parse(raw(metadata={"name": "a", "resourceVersion": version}))
    found.verified_with = verified_with
    return found


def test_an_object_is_kept_whole_but_for_managed_fields() -> None:
    meta = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "newer": {"field": [1, None]}}
    found = parse(raw(apiVersion="v1", metadata=meta | {"managedFields": [{"manager": "m"}]}, newer=1.5))
    assert found.load() == {"apiVersion": "v1", "metadata": meta, "newer": 1.5}
    assert (found.metadata.name, found.metadata.namespace, found.metadata.uid) == ("a", "n", "u")
    assert found.version == "7"


_MANAGED = [{"manager": "vc-syncer", "fieldsV1": {"f:metadata": {"f:labels": {"f:own": {}}}}}]
_NESTED = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text() | st.just("managedFields"), each),
    max_leaves=8,
)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("parser", [parse, parse_super, parse_super_pod])
@given(
    labels=st.none() | st.dictionaries(st.sampled_from(["own", "foreign"]), st.text()),
    managed=st.none() | st.just(_MANAGED) | st.just([]) | st.just(_MANAGED * 2),
    noted=st.none() | st.just("forged"),
    more=_NESTED,
    is_last=st.booleans(),
)
def test_the_record_of_writers_alone_is_left_out(
    parser: BoundedParser[CachedObject],
    separators: tuple[str, str],
    labels: dict[str, str] | None,
    managed: Any,
    noted: str | None,
    more: Any,
    is_last: bool,
) -> None:
    plain = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": labels}
    record = ({} if managed is None else {"managedFields": managed}) | (
        {} if noted is None else {"foreignFields": noted}
    )
    meta = plain | record if is_last else record | plain
    value = {"kind": "K", "metadata": meta, "more": more, "spec": {"managedFields": managed}}
    found = parser(json.dumps(value, separators=separators).encode()).load()
    foreign = found["metadata"].pop("foreignFields", None)
    assert found == value | {"metadata": plain}
    if parser is parse:
        assert foreign is None
    elif not managed:
        assert foreign == {}
    else:
        own_keys: Any = {"metadata": {"labels": {"foreign": {}}}} if "foreign" in (labels or {}) else None
        assert (foreign or {}).get("metadata") == (own_keys or {}).get("metadata")


_RECORDS = st.sampled_from([1, 12, 1.5, 1e300, "a", True, None, {}, {"a": 1}, [], [1], [1, 2], [[1]]])


@given(
    record=_RECORDS,
    other=_RECORDS,
    is_first=st.booleans(),
    is_behind=st.booleans(),
    name=st.sampled_from(["managedFields", "m"]),
)
@example(record=[1], other=[1], is_first=False, is_behind=True, name="managedFields")
def test_a_malformed_record_takes_nothing_else_away(
    record: Any, other: Any, is_first: bool, is_behind: bool, name: str
) -> None:
    """A tenant's API server writes what it likes, at any place."""
    own, plain = {"managedFields": record}, {"name": "a", "resourceVersion": "7"}
    metadata = {"metadata": own | plain if is_first else plain | own}
    spec = {"spec": {"first": 1, name: other, "last": 2}}
    value = spec | metadata if is_behind else metadata | spec
    for separators in ((",", ":"), (", ", ": ")):
        found = parse(json.dumps(value, separators=separators).encode()).load()
        assert found == value | {"metadata": plain}


def test_each_reader_has_a_copy() -> None:
    found = parse(raw(metadata={"name": "a"}, data={"k": "v"}))
    found.load()["data"]["k"] = "changed"
    assert found.load()["data"] == {"k": "v"}


def test_a_compressed_object_reads_the_same() -> None:
    found = parse(raw(metadata={"name": "a", "resourceVersion": "7"}, data={"k": "v" * 1000, "ü": [1, None]}))
    before, size = found.load(), len(found.body)
    found.compress()
    found.compress()
    assert found.load() == before
    assert len(found.body) < size / 2
    assert found.version == "7"


@pytest.mark.parametrize("value", [b"{}", b"[]", b'{"metadata": 1}', b'{"metadata": {"name": 1}}'])
def test_an_object_without_metadata_does_not_parse(value: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        parse(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"1e400", id="a number out of range"),
        pytest.param(b"1" * 5000, id="a whole number out of range"),
        pytest.param(b'"\xff"', id="not UTF-8"),
        pytest.param(b'"\\ud800"', id="half of a surrogate pair"),
        pytest.param(b"NaN", id="not a number"),
    ],
)
@pytest.mark.parametrize("field", ["data", "metadata"])
@pytest.mark.parametrize("parser", [parse, parse_super], ids=["tenant", "super"])
def test_what_cannot_be_loaded_does_not_parse(
    parser: Callable[[bytes], CachedObject], field: str, value: bytes
) -> None:
    """It is held as unreadable then. Otherwise each reader would fail, of lists and of watches as well."""
    text = b'{"metadata": {"name": "a"}, "data": {"a": %s}}'
    if field == "metadata":
        text = b'{"metadata": {"name": "a", "annotations": {"a": %s}}}'
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        parser(text % value)


@pytest.mark.parametrize("value", [b'"\xff"', b"1e400"])
def test_what_a_tenants_record_has_is_passed_over(value: bytes) -> None:
    text = b'{"metadata": {"name": "a", "managedFields": [{"manager": %s}]}, "data": {"a": "b"}}' % value
    assert parse(text).load() == {"metadata": {"name": "a"}, "data": {"a": "b"}}


@pytest.mark.parametrize("value", [b"[],", b'{"":0},', b"0,"], ids=["lists", "maps", "numbers"])
def test_what_takes_far_more_as_objects_does_not_parse(value: bytes) -> None:
    """5 MiB of empty lists are 107 MB, and each copy takes a second in which nothing else is done."""
    values = value * (1_500_000 // len(value)) + b"0"
    with pytest.raises(msgspec.ValidationError, match="more than 200000 values"):
        parse(b'{"metadata": {"name": "a"}, "spec": [%s]}' % values)


def test_texts_of_any_characters_parse() -> None:
    text = '[],{}\\"' * 150_000
    assert parse(raw(metadata={"name": "a"}, data={"k": text})).load()["data"] == {"k": text}


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize(
    "text",
    ["..", ".", "a/b", "a?b", "a#b", "a%2fb", "a b", "a\r\nb", "a\0", "\x7f", "\u00fc", "x" * 254],
)
def test_a_name_that_no_path_may_have_does_not_parse(field: str, text: str) -> None:
    """Names stand in paths of requests to the super cluster, and a tenant's API server may serve any."""
    with pytest.raises(msgspec.ValidationError, match="name"):
        parse(raw(metadata={"name": "a", field: text}))


@pytest.mark.parametrize("name", ["a", "system:a", "A_b.c-1", "x" * 253])
def test_names_of_all_kinds_parse(name: str) -> None:
    assert parse(raw(metadata={"name": name})).metadata.name == name


@pytest.mark.parametrize(
    ("value", "node", "tenant_uid", "claim_namespace"),
    [
        ({"metadata": {"name": "p"}}, "", "", ""),
        ({"metadata": {"name": "p"}, "spec": {"nodeName": "node-1"}}, "node-1", "", ""),
        ({"metadata": {"name": "p", "annotations": {"tenancy.x-k8s.io/uid": "u-1"}}}, "", "u-1", ""),
        ({"metadata": {"name": "v"}, "spec": {"claimRef": {"namespace": "k-stor"}}}, "", "", "k-stor"),
    ],
)
def test_facts_of_pods_and_volumes(
    value: dict[str, Any], node: str, tenant_uid: str, claim_namespace: str
) -> None:
    found = parse_with_spec(raw(**value))
    assert (found.node, found.tenant_uid, found.claim_namespace) == (node, tenant_uid, claim_namespace)


@pytest.mark.parametrize(
    ("spec", "status", "addresses"),
    [
        ({"nodeName": "n"}, {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, ("10.0.0.1", "fd00::1")),
        ({"nodeName": "n"}, {"phase": "Failed", "podIPs": [{"ip": "10.0.0.1"}]}, ()),
        ({"nodeName": "n", "hostNetwork": True}, {"podIPs": [{"ip": "10.0.0.1"}]}, ()),
        ({}, {"phase": "Pending"}, ()),
    ],
)
def test_a_pod_holds_addresses_until_it_ends(
    spec: dict[str, Any], status: dict[str, Any], addresses: tuple[str, ...]
) -> None:
    for parser in (parse_with_spec, parse_super_pod):
        assert parser(raw(metadata={"name": "p"}, spec=spec, status=status)).addresses == addresses


@pytest.mark.parametrize(
    ("tenant", "found", "is_it"),
    [
        pytest.param(None, None, True, id="no object at all"),
        pytest.param(cached("1"), cached("2"), False, id="never planned"),
        pytest.param(cached("1", "2"), cached("2"), True, id="this pair"),
        pytest.param(cached("1", "2"), cached("3"), False, id="the super object changed since"),
        pytest.param(cached("1", "2"), None, False, id="the super object is gone"),
        pytest.param(cached("1", ""), None, True, id="alone, and nothing to do"),
        pytest.param(None, cached("2"), False, id="the tenant's is gone"),
        pytest.param(None, cached("2", ""), True, id="of the super cluster alone"),
    ],
)
def test_a_pair_of_versions_is_verified(
    tenant: CachedObject | None, found: CachedObject | None, is_it: bool
) -> None:
    assert is_verified(Pair(tenant, found)) is is_it


@pytest.mark.parametrize(
    ("event", "at"),
    [
        ({}, ""),
        ({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}, "2026-01-01T00:00:00Z"),
        (
            {
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "lastTimestamp": "2026-01-01T00:05:00Z",
                "eventTime": None,
            },
            "2026-01-01T00:05:00Z",
        ),
        (
            {
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "eventTime": "2026-01-01T00:00:00.5Z",
                "series": {"lastObservedTime": "2026-01-01T00:09:00.0Z"},
            },
            "2026-01-01T00:09:00.0Z",
        ),
        (
            {
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "series": {"count": 2, "lastObservedTime": None},
            },
            "2026-01-01T00:00:00Z",
        ),
    ],
)
def test_when_an_event_last_occurred(event: dict[str, Any], at: str) -> None:
    metadata = {"name": "e", **event.pop("metadata", {})}
    assert last_observed(parse(raw(metadata=metadata, **event))) == at


@pytest.mark.parametrize(
    ("now", "planned", "expected"),
    [
        (cached("7"), "7", False),
        (cached("8"), "7", True),
        (cached("8"), "", True),
        (None, "", False),
        (None, "7", True),
    ],
)
def test_whether_the_cache_has_moved(now: CachedObject | None, planned: str, expected: bool) -> None:
    assert has_moved(now, planned) is expected


def test_what_stands_beside_a_compressed_body_has_its_size() -> None:
    """A server may choose any UID, and addresses without number; they compress to almost nothing."""
    addresses = [{"ip": "10.0.0.1"}] * 1_000
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u" * 10_000, "resourceVersion": "1"},
        "spec": {"nodeName": "node-0"},
        "status": {"podIPs": addresses},
    }
    found = parse_with_spec(json.dumps(pod).encode())
    beside_bytes = found.size_bytes - len(found.body)
    found.compress()
    assert len(found.body) < 1_000
    assert found.size_bytes == len(found.body) + beside_bytes > 10_000 + 1_000 * 64


@pytest.mark.parametrize("kind", ["Pod", "ConfigMap", "Widget"])
def test_what_goes_down_has_no_more_values_than_a_step_plans(kind: str) -> None:
    parser = parser_of(kind, MAX_PLANNED_VALUES)

    def body(values: int) -> bytes:
        return b'{"metadata":{"name":"a"},"spec":{},"more":[' + b",".join([b"0"] * values) + b"]}"

    assert parser(body(MAX_PLANNED_VALUES - 10)).metadata.name == "a"
    with pytest.raises(msgspec.ValidationError, match=f"more than {MAX_PLANNED_VALUES} values"):
        parser(body(MAX_PLANNED_VALUES + 10))


def test_what_goes_down_weighs_no_more_than_a_step_plans() -> None:
    """Each annotation takes as long as five values. What only comes up is not planned by them."""
    body = raw(metadata={"name": "a", "annotations": {f"key-{number}": "" for number in range(4_050)}})
    with pytest.raises(msgspec.ValidationError, match=r"4050 of metadata\.annotations"):
        parser_of("ConfigMap", MAX_PLANNED_VALUES)(body)
    assert parser_of("StorageClass")(body).metadata.name == "a"


@pytest.mark.parametrize("phase", ["", "Running", "Unknown", "Pending", "Succeeded", "Failed"])
@pytest.mark.parametrize("is_ending", [False, True])
@pytest.mark.parametrize("node", ["", "n"])
def test_budgets_hold_up_the_drain_of_pods_that_they_protect(
    phase: str, *, is_ending: bool, node: str
) -> None:
    meta = {"name": "p", "namespace": "red-web", "uid": "u", "resourceVersion": "1"}
    if is_ending:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod = {"metadata": meta, "spec": {"nodeName": node}} | ({"status": {"phase": phase}} if phase else {})
    found = parse_super_pod(msgspec.json.encode(pod))
    assert found.node == node
    assert found.drain_node == (node if phase in ("", "Running", "Unknown") and not is_ending else "")
