# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenants` without a daemon."""

import argparse
import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pytest

from daemonkit.status.server import ListenAddress
from vcnode import daemons, tenants
from vcnode.output import output_of
from vcnode.terminal import Terminal, ToolError

NOW = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)

GOOD: dict[str, Any] = {
    "phase": "Synced",
    "problem": None,
    "virtualCluster": "customers/acme",
    "key": "customers-7d3f1a-acme",
    "weight": 1,
    "queue": {"ready": 0, "delayed": 0, "inFlight": 0},
    "oldestItemSeconds": None,
    "held": {},
    "lastError": "",
    "networkProblem": "",
    "notSynced": [],
    "notSyncedCount": 0,
}
BUSY = GOOD | {
    "virtualCluster": "customers/zeta",
    "key": "customers-7d3f1a-zeta",
    "weight": 4,
    "queue": {"ready": 120, "delayed": 3, "inFlight": 16},
    "oldestItemSeconds": 65.2,
    "lastError": "Pod shop/web: 403",
    "notSynced": [{"kind": "Pod", "object": "shop/web", "reason": "SyncRefused: spec.hostNetwork: no"}],
    "notSyncedCount": 3,
}
HELD = GOOD | {
    "held": {"super": {"reason": "TenantEmpty", "message": "the tenant lacks 40 of 40", "token": "a1b2c3d4"}}
}
UNUSABLE = {
    "phase": "Unusable",
    "problem": {"reason": "CredentialsUnusable", "message": "admin-kubeconfig: not YAML"},
    "virtualCluster": "customers/lost",
}


def status(**found: object) -> dict[str, object]:
    return {"daemon": "vc-syncer", "sourceProblem": "", "tenants": found}


def run(monkeypatch: pytest.MonkeyPatch, answer: object, *argv: str) -> tuple[int, str]:
    requests: list[tuple[ListenAddress, str]] = []

    def fetch(address: ListenAddress, path: str, _timeout_s: float, _method: str) -> tuple[int, bytes]:
        requests.append((address, path))
        return 200, json.dumps(answer).encode()

    monkeypatch.setattr(daemons, "fetch", fetch)
    top = argparse.ArgumentParser()
    tenants.add_to(top.add_subparsers())
    out = io.StringIO()
    arguments = top.parse_args(["tenants", *argv])
    code: int = arguments.run(arguments, Terminal(out, io.StringIO(), NOW, output_of(arguments)))
    assert requests == [(Path("/run/vcnode/vc-syncer/status.sock"), "/status")]
    return code, out.getvalue()


@pytest.mark.parametrize(
    ("answer", "code", "expected"),
    [
        (status(), 0, "no tenants\n"),
        (
            status(a=GOOD, b=BUSY),
            0,
            "TENANT                 PHASE   WEIGHT  READY  DELAYED  IN FLIGHT  OLDEST     HELD  "
            "UNSYNCED  WHY\n"
            "customers-7d3f1a-acme  Synced  1       0      0        0          -          -     0         -\n"
            "customers-7d3f1a-zeta  Synced  4       120    3        16         1 min 5 s  -     3         "
            "Pod shop/web: 403\n",
        ),
        (
            status(**{"customers/lost/uid": UNUSABLE}),
            1,
            "TENANT              PHASE     WEIGHT  READY  DELAYED  IN FLIGHT  OLDEST  HELD  "
            "UNSYNCED  WHY\n"
            "customers/lost/uid  Unusable  1       0      0        0          -       -     0         "
            "CredentialsUnusable: admin-kubeconfig: not YAML\n",
        ),
        (
            status(a=HELD),
            1,
            "TENANT                 PHASE   WEIGHT  READY  DELAYED  IN FLIGHT  OLDEST  HELD   "
            "UNSYNCED  WHY\n"
            "customers-7d3f1a-acme  Synced  1       0      0        0          -       super  0         -\n"
            "\n"
            "customers-7d3f1a-acme: deletions are held on side super: the tenant lacks 40 of 40\n"
            "  if they are meant: kubectl annotate virtualcluster acme --namespace customers --overwrite"
            " vcnode.io/release-held=a1b2c3d4\n",
        ),
    ],
)
def test_tenants_are_listed(monkeypatch: pytest.MonkeyPatch, answer: Any, code: int, expected: str) -> None:
    assert run(monkeypatch, answer, "-o", "wide") == (code, expected)


def test_queue_is_one_column_unless_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, status(a=GOOD, b=BUSY))[1].splitlines() == [
        "TENANT                 PHASE   QUEUE  OLDEST     HELD  UNSYNCED  WHY",
        "customers-7d3f1a-acme  Synced  0      -          -     0         -",
        "customers-7d3f1a-zeta  Synced  139    1 min 5 s  -     3         Pod shop/web: 403",
    ]


def test_one_tenant_has_its_unsynced_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = run(monkeypatch, status(a=GOOD, b=BUSY), "--tenant", "customers-7d3f1a-zeta")
    assert code == 0
    assert text.splitlines()[2:] == [
        "",
        "KIND  OBJECT    REASON",
        "Pod   shop/web  SyncRefused: spec.hostNetwork: no",
        "and 2 more",
    ]
    with pytest.raises(ToolError, match="no such tenant"):
        run(monkeypatch, status(a=GOOD), "--tenant", "nobody")


def test_release_prints_the_command_of_that_token(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "kubectl annotate virtualcluster acme --namespace customers --overwrite"
    assert run(monkeypatch, status(a=HELD), "--release", "a1b2c3d4") == (
        0,
        f"{command} vcnode.io/release-held=a1b2c3d4\n",
    )
    with pytest.raises(ToolError, match="no deletions are held under this token"):
        run(monkeypatch, status(a=HELD), "--release", "other")
    code, text = run(monkeypatch, status(a=HELD | {"virtualCluster": None}), "--release", "a1b2c3d4")
    assert (code, text.partition("   #")[0]) == (0, f"echo a1b2c3d4 > {HELD['key']}.release")


def test_document_has_the_whole_status(monkeypatch: pytest.MonkeyPatch) -> None:
    page = status(a=GOOD | {"newKey": 1}, b=GOOD | {"key": "vc-b"})
    code, text = run(monkeypatch, page, "--tenant", GOOD["key"], "-o", "json")
    assert (code, json.loads(text)) == (
        0,
        {
            "apiVersion": "vcnode.io/v1alpha1",
            "kind": "SyncedTenantList",
            "items": [{"source": "a", **GOOD, "newKey": 1}],
            "status": {key: value for key, value in page.items() if key != "tenants"},
        },
    )


def test_release_command_as_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, status(a=HELD), "--release", "a1b2c3d4", "-o", "json")[1])
    assert (found["kind"], found["token"]) == ("ReleaseCommand", "a1b2c3d4")
    assert found["command"].endswith("vcnode.io/release-held=a1b2c3d4")
