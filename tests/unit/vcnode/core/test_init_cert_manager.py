# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from vcnode.core import init_cert_manager
from vcnode.core.init_plan import NodeDaemon, NodeSettings, Signer
from vcnode.terminal import ToolError

NODE = NodeSettings("node-1", "10.0.0.11", "", (NodeDaemon.VN_AGENT, NodeDaemon.DNSCONFIG))
ISSUERS = {Signer.CLIENT: "clients", Signer.KUBELET_CLIENT: "kubelets", Signer.SERVING: "serving"}
WHOLE = """\
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: "node-1-vn-agent-serving", namespace: "vcnode-system"}
spec:
  secretName: "node-1-vn-agent-serving"  # as files in vn-agent-serving/
  commonName: "node-1"
  dnsNames: ["node-1"]
  ipAddresses: ["10.0.0.11"]
  usages: ["server auth", digital signature]
  duration: 8760h
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
  issuerRef: {name: "serving", kind: Issuer, group: cert-manager.io}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: "node-1-vn-agent-kubelet-client", namespace: "vcnode-system"}
spec:
  secretName: "node-1-vn-agent-kubelet-client"  # as files in vn-agent-kubelet-client/
  commonName: "vcnode:vn-agent:node-1"
  usages: ["client auth", digital signature]
  duration: 8760h
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
  issuerRef: {name: "kubelets", kind: Issuer, group: cert-manager.io}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: "node-1-dnsconfig-client", namespace: "vcnode-system"}
spec:
  secretName: "node-1-dnsconfig-client"  # as files in dnsconfig-client/
  commonName: "vcnode:dnsconfig:node-1"
  subject: {organizations: ["vcnode:dnsconfigs"]}
  usages: ["client auth", digital signature]
  duration: 8760h
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
  issuerRef: {name: "clients", kind: Issuer, group: cert-manager.io}
"""


def test_each_certificate_has_an_object() -> None:
    lines = init_cert_manager.documents(NODE, ISSUERS, "Issuer", "vcnode-system")
    assert "\n".join(lines) + "\n" == WHOLE


def test_names_that_cert_manager_refuses_are_refused() -> None:
    long = dataclasses.replace(NODE, node_name="a" * 60)
    with pytest.raises(ToolError, match="more than 64 characters"):
        list(init_cert_manager.documents(long, ISSUERS, "Issuer", "vcnode-system"))
