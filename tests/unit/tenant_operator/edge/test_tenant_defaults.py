# SPDX-License-Identifier: Apache-2.0
"""A pass over the defaults of a tenant, against an API server that refuses, is slow, or answers nonsense."""

import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Status
from tenant_operator.defaults.desired import DesiredList, DesiredObject
from tenant_operator.defaults.inventory import EntryState, Inventory
from tenant_operator.defaults.plan import applied
from tenant_operator.edge.tenant_api import TenantApi
from tenant_operator.edge.tenant_defaults import DefaultsResult, apply_defaults
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model.objects import OPERATOR, Object
from tests.unit.tenant_operator.defaults import manifests
from tests.unit.tenant_operator.defaults.manifests import config_map, definition, desired, namespace, widget

pytestmark = pytest.mark.asyncio

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}
A, B = config_map("a", x="1"), config_map("b", x="1")


class FakeTenantServer:
    """Keeps what is applied, all of it as the operator's. `requests` are method, path and parameters."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.lists: dict[str, object] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.refuse: Callable[[str, str], Exception | None] = lambda _method, _path: None
        self.answers: dict[str, bytes] = {}
        self.patched: dict[str, Object] = {}
        self.is_closed = False

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = 0,
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        assert 0 < limit_bytes <= 4 << 20
        if before_send is not None:
            before_send()
        self.requests.append((method, path, " ".join(f"{key}={value}" for key, value in params.items())))
        if (error := self.refuse(method, path)) is not None:
            raise error
        if path in self.answers:
            return self.answers[path]
        if path in self.lists:
            return msgspec.json.encode({"items": self.lists[path]})
        if method == "PATCH" and path in self.patched:
            return msgspec.json.encode(self.patched[path])
        if method == "PATCH":
            assert content_type == "application/apply-patch+yaml"
            self._apply(path, msgspec.json.decode(body or b""))
        if path not in self.objects:
            raise refusal(404, "NotFound", f"{path} not found")
        if method == "DELETE":
            options = msgspec.json.decode(body or b"")
            metadata = self.objects[path]["metadata"]
            expected = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            assert options["preconditions"] == expected
            return msgspec.json.encode(self.objects.pop(path))
        return msgspec.json.encode(self.objects[path])

    server = "https://10.96.7.7:6443"

    def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("nothing in a tenant is watched")

    async def close(self) -> None:
        self.is_closed = True

    def _apply(self, path: str, manifest: Object) -> None:
        self.objects[path] = manifests.live(manifest, f"uid of {manifest['metadata']['name']}")

    def writes(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.requests if method != "GET"]


def refusal(code: int, reason: str, message: str) -> ApiError:
    return ApiError(Status(code, reason, message))


async def passed(
    server: FakeTenantServer,
    objects: list[DesiredObject],
    inventory: Inventory | None = None,
    secrets: Mapping[str, Object] | None = None,
) -> DefaultsResult:
    listed = DesiredList(tuple(objects))
    return await apply_defaults(
        TenantApi(GatedClient(server, lambda: True)), listed, inventory or Inventory(), secrets or {}, "acme"
    )


def refs(result: DefaultsResult) -> list[str]:
    return [str(entry.ref) for entry in result.inventory.entries]


async def test_all_is_applied_in_order_and_then_nothing() -> None:
    server = FakeTenantServer()
    objects = [desired(namespace("a")), desired(A), desired(B)]
    first = await passed(server, objects)
    writes = [
        "PATCH /api/v1/namespaces/a",
        *(f"PATCH /api/v1/namespaces/a/configmaps/{each}" for each in "ab"),
    ]
    assert server.writes() == writes
    assert {asked for method, _, asked in server.requests if method == "PATCH"} == {
        f"fieldManager={OPERATOR} force=false"
    }
    assert first == DefaultsResult(first.inventory)
    assert first.inventory.digest == DesiredList(tuple(objects)).digest
    assert await passed(server, objects, first.inventory) == first
    assert server.writes() == writes


async def test_what_is_refused_does_not_stop_the_others() -> None:
    server = FakeTenantServer()
    message = "spec:\n invalid\x1b[31m " + "x" * 1000
    server.refuse = lambda method, path: (
        refusal(422, "Invalid", message) if method == "PATCH" and path.endswith("/a") else None
    )
    found = await passed(server, [desired(A), desired(B)])
    assert refs(found) == ["ConfigMap a/b"]
    assert found.inventory.digest == ""
    assert [len(each) < 400 and each.isprintable() for each in found.problems] == [True]
    assert found.problems[0].startswith("ConfigMap a/a: 422 Invalid: spec: invalid[31m xxx")


async def test_a_webhook_is_named_by_its_configuration() -> None:
    server = FakeTenantServer()
    root = "/apis/admissionregistration.k8s.io/v1"
    server.lists = {
        f"{root}/validatingwebhookconfigurations": [
            {"metadata": {"name": "catch-all"}, "webhooks": [{"name": "all.example.com"}]}
        ],
        f"{root}/mutatingwebhookconfigurations": "nonsense",
    }
    message = 'Internal error occurred: failed calling webhook "all.example.com": no endpoints'
    server.refuse = lambda method, _: refusal(500, "InternalError", message) if method == "PATCH" else None
    assert (await passed(server, [desired(A)])).problems == (
        "ConfigMap a/a: ValidatingWebhookConfiguration catch-all (webhook all.example.com) of the tenant does"
        " not answer, so that the tenant's API server refuses writes; repair it, or disable it:"
        " kubectl vc unblock acme",
    )


async def test_an_unreachable_server_keeps_what_is_done() -> None:
    server = FakeTenantServer()
    server.refuse = lambda method, path: (
        UnreachableError("no answer in time") if method == "PATCH" and path.endswith("/b") else None
    )
    found = await passed(server, [desired(A), desired(B), desired(namespace("c"))])
    assert (refs(found), found.problems) == (["ConfigMap a/a"], ("no answer in time",))
    assert server.writes()[-1].endswith("/b")


@pytest.mark.parametrize("answer", [b"[]", b"{", b'"x"', b"null", b"[" * 100_000])
async def test_nonsense_is_no_object(answer: bytes) -> None:
    server = FakeTenantServer()
    server.answers = {desired(A).path: answer}
    found = await passed(server, [desired(A)])
    assert (server.writes(), found.inventory, len(found.problems)) == ([], Inventory(), 1)


MANAGER = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:x": {}}}}
BASE: Object = {
    "metadata": {"uid": "u", "resourceVersion": "7", "managedFields": [MANAGER], "annotations": {"a": "b"}},
    "spec": definition()["spec"],
    "status": ESTABLISHED,
}
ODD: list[Any] = [None, 5, True, "", "\x1b]0;x\x07\n", "x" * 300, [], [1], {}, {"name": [1]}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of each value within a value."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def with_value(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_value(value[path[0]], path[1:], other)
    return copy


@pytest.mark.parametrize("path", list(places(BASE)), ids=str)
@pytest.mark.parametrize("method", ["", "PATCH"])
async def test_any_value_in_an_answer_is_survived(path: tuple[Any, ...], method: str) -> None:
    """Each field of an object has each kind of value once: nothing is raised, and no text has controls."""
    for essential, is_listed in ((False, True), (True, True), (False, False)):
        for manifest in (A, definition()):
            for odd in ODD:
                each = desired(manifest, "d2", is_essential=essential)
                server = FakeTenantServer()
                if method:
                    server.patched[each.path] = with_value(BASE, path, odd)
                else:
                    server.answers[each.path] = msgspec.json.encode(with_value(BASE, path, odd))
                before = Inventory("", (applied(desired(manifest), BASE),))
                found = await passed(server, [each] if is_listed else [], before)
                assert all(len(text) < 500 and text.isprintable() for text in found.problems)
                assert all(len(entry.uid) < 254 for entry in found.inventory.entries)


@pytest.mark.parametrize(
    "junk",
    [
        {"data": [{"a": 1}] * 60_000},
        {"status": {"conditions": [{"type": "x"}] * 60_000}},
        {"metadata": {**BASE["metadata"], "annotations": {str(number): "x" for number in range(50_000)}}},
        {"metadata": {**BASE["metadata"], "managedFields": [{"manager": "x"}] * 90_000}},
        {
            "metadata": {
                **BASE["metadata"],
                "managedFields": [{**MANAGER, "fieldsV1": {"f:y": [{}] * 90_000}}],
            }
        },
        {"metadata": {**BASE["metadata"], "managedFields": [{"manager": "x" * 1_000_000}]}},
    ],
)
async def test_large_answers_are_not_held_together(junk: Object) -> None:
    """All objects of a pass are known at once; of each is kept what a plan needs."""
    body = msgspec.json.encode({**BASE, **junk})
    objects = [desired(config_map(f"c{number}", x="1")) for number in range(5)]

    async def peak(count: int) -> int:
        server = FakeTenantServer()
        server.answers = {each.path: body for each in objects}
        thresholds = gc.get_threshold()
        # Python's own: what is left in cycles goes as it does in the daemon.
        gc.set_threshold(700, 10, 10)
        tracemalloc.start()
        try:
            await passed(server, objects[:count])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            gc.set_threshold(*thresholds)

    await peak(1)
    assert await peak(5) < await peak(1) + len(body) // 2 + 100_000


async def test_what_is_kept_of_a_pass_is_bounded() -> None:
    server = FakeTenantServer()
    keys = [f"k{number}" for number in range(4000)]
    objects = [desired(config_map(f"c{number}", **dict.fromkeys(keys, ""))) for number in range(19)]
    fields: Object = {"f:data": {f"f:{key}": {} for key in keys}}
    metadata = {"uid": "u", "managedFields": [{"manager": "x", "fieldsV1": fields}]}
    server.answers = {each.path: msgspec.json.encode({"metadata": metadata}) for each in objects}
    found = await passed(server, objects)
    assert (found.problems, server.writes()) == (("the owners of the fields take more than 4 MiB",), [])


async def test_objects_of_a_definition_wait_for_it() -> None:
    server = FakeTenantServer()
    objects = [desired(definition()), desired(widget("w"))]
    first = await passed(server, objects)
    assert first.waits_for == ("CustomResourceDefinition widgets.example.com to be established",)
    assert (refs(first), first.inventory.digest) == (["CustomResourceDefinition widgets.example.com"], "")
    server.objects[CRDS + manifests.CRD_NAME]["status"] = ESTABLISHED
    second = await passed(server, objects, first.inventory)
    assert refs(second) == ["CustomResourceDefinition widgets.example.com", "Widget w"]
    assert (second.waits_for, bool(second.inventory.digest)) == ((), True)


@pytest.mark.parametrize(
    ("items", "is_removed"), [([], True), ([{}], False), ("nonsense", False), (None, False)]
)
async def test_a_definition_goes_once_no_object_is_left(items: object, is_removed: bool) -> None:
    """Where its objects cannot be listed, there may be some."""
    server = FakeTenantServer()
    first = await passed(server, [desired(definition())])
    if items is not None:
        server.lists["/apis/example.com/v1/widgets"] = items
    server.requests.clear()
    second = await passed(server, [], first.inventory)
    assert server.writes() == ([f"DELETE {CRDS}{manifests.CRD_NAME}"] if is_removed else [])
    assert bool(second.problems) is not is_removed
    if items is not None:
        assert ("GET", "/apis/example.com/v1/widgets", "limit=1") in server.requests


async def test_what_left_the_list_is_deleted_and_forgotten() -> None:
    server = FakeTenantServer()
    first = await passed(server, [desired(A), desired(B)])
    second = await passed(server, [desired(A)], first.inventory)
    assert server.writes()[-1] == "DELETE /api/v1/namespaces/a/configmaps/b"
    assert refs(second) == ["ConfigMap a/a"]
    assert second.inventory.digest == DesiredList((desired(A),)).digest


async def test_a_secret_is_copied_with_its_key() -> None:
    server = FakeTenantServer()
    secret = {**A, "kind": "Secret", "type": "kubernetes.io/tls"}
    ref = manifests.ref_of(secret)
    copied = DesiredObject(ref, manifests.path_of(ref), secret, "d", copied_from="metrics-client")
    missing = await passed(server, [copied])
    assert missing.problems == ("Secret a/a waits for Secret metrics-client of the root namespace",)
    data = {"tls.crt": "Y2VydA==", "tls.key": "a2V5"}
    broken = await passed(server, [copied], secrets={"metrics-client": {"data": {**data, "tls.key": ""}}})
    assert (broken.problems, server.writes()) == (missing.problems, [])
    await passed(server, [copied], secrets={"metrics-client": {"data": {**data, "ca.crt": "Y2E="}}})
    assert server.objects[copied.path]["data"] == data


async def test_a_lost_inventory_is_found_again() -> None:
    server = FakeTenantServer()
    first = await passed(server, [desired(A)])
    found = await passed(server, [desired(A)])
    assert found == first
    assert [entry.state for entry in found.inventory.entries] == [EntryState.APPLIED]
