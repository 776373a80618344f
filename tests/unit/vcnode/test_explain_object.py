# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain object` without a daemon."""

import datetime as dt
import io
import json
from typing import Any

import pytest

from vcnode import daemons
from vcnode.__main__ import parser
from vcnode.output import output_of
from vcnode.terminal import Terminal, ToolError

NOW = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)
NOTHING: dict[str, Any] = {"actions": [], "refusals": [], "wait": None, "conflict": "", "waitsFor": []}
PAGE: dict[str, Any] = {
    "tenant": "vc-a",
    "kind": "Pod",
    "namespace": "shop",
    "name": "web",
    "isInTenant": True,
    "superNamespace": "vc-a-shop",
    "ownsSuperNamespace": True,
    "isInSuper": True,
    "superName": "web",
    "unreadable": {},
    "isSynced": True,
    "isHeld": False,
    "reason": "",
    "conflict": "",
    "policyProblem": "",
    "plan": NOTHING,
}


def run(monkeypatch: pytest.MonkeyPatch, page: object, *argv: str, code: int = 200) -> tuple[int, str, str]:
    paths: list[str] = []

    def fetch(_address: object, path: str, _timeout_s: float, _method: str) -> tuple[int, bytes]:
        paths.append(path)
        return code, json.dumps(page).encode()

    monkeypatch.setattr(daemons, "fetch", fetch)
    arguments = parser(("explain_object",)).parse_args(["object", *argv])
    out = io.StringIO()
    result: int = arguments.run(arguments, Terminal(out, io.StringIO(), NOW, output_of(arguments)))
    return result, out.getvalue(), paths[0]


WEB = ("Pod", "shop/web", "--tenant", "vc-a")


@pytest.mark.parametrize(
    ("changes", "code", "expected"),
    [
        (
            {},
            0,
            "tenant         Pod shop/web\nsuper cluster  Pod vc-a-shop/web\nstate          synced\n",
        ),
        (
            {
                "isInSuper": False,
                "superName": "",
                "isSynced": False,
                "reason": "SyncRefused: spec.hostNetwork: must be false",
                "plan": NOTHING | {"refusals": [{"path": "spec.hostNetwork", "message": "must be false"}]},
            },
            1,
            "tenant         Pod shop/web\n"
            "super cluster  none in vc-a-shop\n"
            "state          not synced\n"
            "reported       SyncRefused: spec.hostNetwork: must be false\n"
            "refused        spec.hostNetwork: must be false\n",
        ),
        (
            {
                "isInSuper": False,
                "superName": "",
                "ownsSuperNamespace": False,
                "isSynced": False,
                "plan": NOTHING
                | {
                    "wait": {"reason": "NamespaceNotSynced", "message": "namespace shop is not there yet"},
                    "waitsFor": [{"side": "super", "kind": "Namespace", "namespace": "", "name": "shop"}],
                },
            },
            1,
            "tenant         Pod shop/web\n"
            "super cluster  namespace vc-a-shop is not there, or is not this tenant's\n"
            "state          not synced\n"
            "waits          NamespaceNotSynced: namespace shop is not there yet\n"
            "looked up      super: Namespace /shop\n",
        ),
        (
            {
                "isSynced": False,
                "plan": NOTHING
                | {
                    "actions": [
                        {
                            "action": "patch",
                            "side": "super",
                            "kind": "Pod",
                            "patch": {"metadata": {"labels": {"a": "b"}}},
                        },
                        {
                            "action": "patch",
                            "side": "tenant",
                            "kind": "Pod",
                            "subresource": "status",
                            "patch": {},
                        },
                        {"action": "bind", "side": "tenant", "kind": "Pod", "node": "worker-1"},
                    ]
                },
            },
            1,
            "tenant         Pod shop/web\n"
            "super cluster  Pod vc-a-shop/web\n"
            "state          not synced\n"
            'differs        patch Pod in the super cluster: {"metadata": {"labels": {"a": "b"}}}\n'
            "differs        patch Pod/status in the tenant: {}\n"
            "differs        bind Pod in the tenant to node worker-1\n",
        ),
        (
            {
                "isInTenant": False,
                "isHeld": True,
                "isSynced": False,
                "conflict": "Pod vc-a-shop/web is not the tenant's",
                "policyProblem": "SyncPolicy gold does not exist",
            },
            1,
            "tenant         Pod shop/web does not exist\n"
            "super cluster  Pod vc-a-shop/web\n"
            "state          not synced\n"
            "held           its deletion waits for a person: vcnode tenants\n"
            "policy         SyncPolicy gold does not exist: nothing new goes down\n"
            "conflict       Pod vc-a-shop/web is not the tenant's; it is left as it is\n",
        ),
        (
            {
                "isSynced": False,
                "unreadable": {"tenant": "too large: 6 MiB", "super": "of no shape"},
                "plan": NOTHING | {"refusals": [{"path": "object", "message": "too large: 6 MiB"}]},
            },
            1,
            "tenant         Pod shop/web cannot be read: too large: 6 MiB\n"
            "super cluster  Pod vc-a-shop/web cannot be read: of no shape\n"
            "state          not synced\n"
            "refused        object: too large: 6 MiB\n",
        ),
        (
            {"isInTenant": False, "isInSuper": False, "plan": None},
            1,
            "tenant         Pod shop/web does not exist\n"
            "super cluster  none in vc-a-shop\n"
            "state          there is no such object on either side\n",
        ),
    ],
)
def test_objects_are_explained(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: int, expected: str
) -> None:
    assert run(monkeypatch, PAGE | changes, *WEB) == (
        code,
        expected,
        "/explain?tenant=vc-a&kind=Pod&name=web&namespace=shop",
    )


def test_secrets_show_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    action = {"action": "patch", "side": "super", "kind": "Secret", "paths": ["data.a", "data.b"]}
    page = PAGE | {"kind": "Secret", "plan": NOTHING | {"actions": [action]}}
    text = run(monkeypatch, page, "Secret", "shop/web", "--tenant", "vc-a")[1]
    assert text.splitlines()[-1] == "differs        patch Secret in the super cluster: data.a, data.b"


def test_kinds_without_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE | {"kind": "Namespace", "namespace": "", "name": "shop", "superName": "vc-a-shop"}
    code, text, path = run(monkeypatch, page, "Namespace", "shop", "--tenant", "vc-a")
    assert (code, path) == (0, "/explain?tenant=vc-a&kind=Namespace&name=shop")
    assert text.splitlines()[:2] == ["tenant         Namespace shop", "super cluster  Namespace vc-a-shop"]


def test_error_of_the_daemon_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match="Pod shop/web: no such tenant is synced"):
        run(monkeypatch, {"error": "no such tenant is synced"}, *WEB, code=404)


def test_json_is_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, PAGE | {"newKey": 1}, *WEB, "-o", "json")[1])
    header = {"apiVersion": "vcnode.io/v1alpha1", "kind": "ObjectExplanation"}
    assert found == header | {"object": PAGE | {"newKey": 1}}
