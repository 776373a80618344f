# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps (reference 8: configmap dws and patrol)."""

from syncer.kinds.configmap import SYNC
from tests.unit.syncer.kinds.objects import brief, created, patched, plan, super_object, tenant_object


def test_the_root_certificates_go_down_beside_the_super_clusters() -> None:
    body = created(plan(SYNC, tenant_object("ConfigMap", "kube-root-ca.crt", data={"ca.crt": "x"}), None))
    assert body["metadata"]["name"] == "tenant-kube-root-ca.crt"
    assert SYNC.super_name("kube-root-ca.crt") == "tenant-kube-root-ca.crt"
    assert SYNC.tenant_name("tenant-kube-root-ca.crt") == "kube-root-ca.crt"
    assert SYNC.tenant_name("kube-root-ca.crt") is None
    assert SYNC.tenant_name("a") == SYNC.super_name("a") == "a"


def test_data_of_both_forms_is_repaired() -> None:
    own = tenant_object("ConfigMap", data={"k": "v"}, binaryData={"b": "AA=="}, immutable=True)
    there = super_object("ConfigMap", data={"k": "w", "more": "x"})
    assert patched(plan(SYNC, own, there)) == {
        "data": {"k": "v", "more": None},
        "binaryData": {"b": "AA=="},
        "immutable": True,
    }
    assert brief(plan(SYNC, tenant_object("ConfigMap"), super_object("ConfigMap", data={}))) == []
