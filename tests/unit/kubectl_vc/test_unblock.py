# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc unblock`, with whole output."""

import pytest

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.core.faults import FaultReason, RequestFault
from kubectl_vc.core.view import VIRTUAL_CLUSTERS
from kubectl_vc.unblock import unblock
from tests.unit.kubectl_vc.invocations import Ended, call, running, secret

VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"


@pytest.fixture
def api() -> FakeKubectl:
    """The super cluster and the tenant in one."""
    webhooks = [
        {"name": "first.x", "clientConfig": {"url": "https://x"}, "failurePolicy": "Ignore"},
        {
            "name": "all.x",
            "clientConfig": {"service": {"namespace": "d", "name": "gone"}},
            "failurePolicy": "Fail",
            "rules": [{"apiGroups": ["*"], "resources": ["*"]}],
        },
    ]
    configuration = {"metadata": {"name": "policy"}, "webhooks": webhooks}
    return FakeKubectl({VIRTUAL_CLUSTERS: [running()], "secrets": [secret()], VALIDATING: [configuration]})


@pytest.fixture(autouse=True)
def _directory(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_what_stops_the_tenant_is_listed(api: FakeKubectl) -> None:
    failed = 'failed calling webhook "all.x": failed to call webhook'
    api.refusals["create", "configmaps"] = RequestFault(FaultReason.OTHER, failed)
    assert call(unblock, "unblock acme -n tenants", api) == Ended(
        1,
        "CONFIGURATION   WEBHOOK   CALLS            STOPS THE TENANT AS\n"
        "policy          all.x     Service d/gone   a request failed on it just now; Service d/gone has no"
        " ready endpoint; it must answer each write of the tenant, the control plane's own too\n",
        "To ignore one: kubectl vc unblock acme -n tenants --webhook WEBHOOK\n",
    )


def test_one_is_ignored_and_how_to_undo_it(api: FakeKubectl) -> None:
    ended = call(unblock, "unblock acme -n tenants --webhook policy", api)
    assert ended == Ended(
        0,
        "validatingwebhookconfigurations policy, webhook all.x: failurePolicy is Ignore now\n",
        "To undo it, in kubectl vc shell acme -n tenants:\n"
        "  kubectl patch validatingwebhookconfigurations policy --type=json"
        ' --patch=\'[{"op":"replace","path":"/webhooks/1/failurePolicy","value":"Fail"}]\'\n',
    )
    assert api.objects[VALIDATING, "", "policy"]["webhooks"][1]["failurePolicy"] == "Ignore"
    assert call(unblock, "unblock acme -n tenants", api).out == (
        "no webhook stops VirtualCluster tenants/acme: of 2, none that must answer is away or matches all\n"
    )
    assert call(unblock, "unblock acme -n tenants --webhook policy", api).error == (
        "VirtualCluster tenants/acme has no webhook or configuration policy with failurePolicy Fail; there"
        " are: all.x, first.x"
    )


def test_a_tenant_that_does_not_answer(api: FakeKubectl) -> None:
    api.refusals["list", VALIDATING] = RequestFault(FaultReason.UNREACHABLE, "refused")
    assert call(unblock, "unblock acme -n tenants", api).error == (
        "cannot ask VirtualCluster tenants/acme for its webhooks: the tenant's API server: Unreachable:"
        " refused; check the API server's address, the network and any proxy; then try again"
    )
