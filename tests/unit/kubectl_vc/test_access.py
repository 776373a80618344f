# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc kubeconfig` and `credential`: where they ask, and what they refuse."""

import base64
import json

import pytest

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.access import credential, save_kubeconfig
from kubectl_vc.core.faults import FaultReason, RequestFault
from kubectl_vc.core.view import VIRTUAL_CLUSTERS
from tests.unit.kubectl_vc.invocations import call, kubeconfig, running, secret


@pytest.fixture
def api() -> FakeKubectl:
    made = FakeKubectl({VIRTUAL_CLUSTERS: [running()], "secrets": [secret()]})
    made.config_answers = {"current-context": "super\n"}
    return made


def test_the_current_context_is_written_down(api: FakeKubectl) -> None:
    ended = call(save_kubeconfig, "kubeconfig acme -n tenants", api)
    config = json.loads(ended.out)
    plugin = config["users"][0]["user"]["exec"]
    assert (ended.code, ended.err) == (0, "")
    assert config["current-context"] == "tenants/acme@super"
    assert plugin["args"] == ["credential", "--context=super", "--namespace=tenants", "acme"]
    assert plugin["env"] == [{"name": "KUBECONFIG", "value": "/home/ada/.kube/config"}]
    # It is not in PATH.
    assert plugin["command"] == "/opt/bin/kubectl-vc"
    assert "key" not in json.dumps(config["users"]).lower()


def test_several_files_and_flags_are_written_down(api: FakeKubectl) -> None:
    environment = {"HOME": "/home/ada", "KUBECONFIG": "/a::/b", "PATH": ""}
    ended = call(
        save_kubeconfig, "kubeconfig acme -n tenants --as ada --context c", api, environment=environment
    )
    plugin = json.loads(ended.out)["users"][0]["user"]["exec"]
    assert plugin["args"] == ["credential", "--context=c", "--as=ada", "--namespace=tenants", "acme"]
    assert plugin["env"] == [{"name": "KUBECONFIG", "value": "/a:/b"}]
    ended = call(
        save_kubeconfig, "kubeconfig acme -n tenants --kubeconfig /k:1", api, environment=environment
    )
    plugin = json.loads(ended.out)["users"][0]["user"]["exec"]
    assert plugin["args"] == ["credential", "--context=super", "--namespace=tenants", "acme"]
    assert plugin["env"] == [{"name": "KUBECONFIG", "value": "/k:1"}]


def test_where_no_context_is_current_none_is_written(api: FakeKubectl) -> None:
    api.config_answers = {}
    config = json.loads(call(save_kubeconfig, "kubeconfig acme -n tenants", api).out)
    assert config["current-context"] == "tenants/acme"
    assert config["users"][0]["user"]["exec"]["args"] == ["credential", "--namespace=tenants", "acme"]


def test_a_credential(api: FakeKubectl) -> None:
    ended = call(credential, "credential acme -n tenants", api)
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["status"]["clientKeyData"] == "the key"


def test_a_kubeconfig_that_leads_to_the_tenant(api: FakeKubectl) -> None:
    """Its credential would be asked for with itself, for ever."""
    environment = {"KUBECTL_VC_CREDENTIAL_OF": "tenants/acme"}
    ended = call(credential, "credential acme -n tenants", api, environment=environment)
    assert ended.error == (
        "the kubeconfig of VirtualCluster tenants/acme leads to the tenant and not to the super cluster:"
        " make it again with the super cluster's --context: kubectl vc kubeconfig acme -n tenants"
    )


def test_what_cannot_be_used(api: FakeKubectl) -> None:
    del api.objects["secrets", "tenants", "acme-kubeconfig"]
    assert call(save_kubeconfig, "kubeconfig acme -n tenants", api).error == (
        "cannot read Secret tenants/acme-kubeconfig: vc-operator has not written it yet; wait until the"
        " tenant is Ready: kubectl vc get acme -n tenants"
    )
    api.add("secrets", secret(kubeconfig("http://x")))
    assert call(credential, "credential acme -n tenants", api).error == (
        "the kubeconfig that vc-operator wrote for VirtualCluster tenants/acme cannot be used: its server"
        " is no https:// address; delete the Secret, and vc-operator writes it again"
    )
    api.add(
        "secrets", {"metadata": {"name": "acme-kubeconfig", "namespace": "tenants"}, "data": {"value": "??"}}
    )
    assert "its data is no base64" in call(credential, "credential acme -n tenants", api).error
    deep = base64.b64encode(b"[" * 100_000).decode()
    api.add(
        "secrets", {"metadata": {"name": "acme-kubeconfig", "namespace": "tenants"}, "data": {"value": deep}}
    )
    assert "it is no kubeconfig" in call(credential, "credential acme -n tenants", api).error
    api.refusals["get", "secrets"] = RequestFault(FaultReason.FORBIDDEN, "no")
    assert call(credential, "credential acme -n tenants", api).error == (
        "cannot read Secret tenants/acme-kubeconfig: the super cluster: Forbidden: no; ask an"
        " administrator of that cluster for this right, or use another --context"
    )
