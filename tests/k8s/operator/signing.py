# SPDX-License-Identifier: Apache-2.0
"""Certificates that a tenant's administrator has its own controller manager sign."""

from __future__ import annotations

import base64
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from devkit.pki import Leaf, common_name, new_key
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.api import HttpResponse
from tests.k8s.syncer.shops import object_of

_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SIGNER = "kubernetes.io/kube-apiserver-client"


def request(tenant: OperatedTenant, name: str, user: str, group: str | None = None) -> HttpResponse | Leaf:
    """A client certificate for a user of a group, which the administrator approves; or the refusal."""
    key = new_key()
    builder = x509.CertificateSigningRequestBuilder().subject_name(common_name(user, organization=group))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": _SIGNER,
        "usages": ["digital signature", "client auth"],
    }
    made = object_of("certificates.k8s.io/v1", "CertificateSigningRequest", name, spec=spec)
    kubectl, api = tenant.kubectl(), tenant.api()
    reply = api.endpoint.request(
        "POST", _REQUESTS, body=json.dumps(made).encode(), headers={"Content-Type": "application/json"}
    )
    if reply.status != 201:
        return reply
    kubectl("certificate", "approve", name).check()
    tenant.wait("it is signed", lambda: api.get(f"{_REQUESTS}/{name}").get("status", {}).get("certificate"))
    signed = base64.b64decode(api.get(f"{_REQUESTS}/{name}")["status"]["certificate"])
    return Leaf.of(x509.load_pem_x509_certificate(signed), key)
