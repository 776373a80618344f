# SPDX-License-Identifier: Apache-2.0
"""cert-manager's Certificate objects for the daemons of a node."""

import json
from collections.abc import Iterator, Mapping

from vcnode.core.init_plan import CertificateSpec, NodeSettings, Signer
from vcnode.terminal import ToolError

# cert-manager renews at two thirds of this by itself.
_DURATION = "8760h"
# RFC 5280, ub-common-name.
_MAX_COMMON_NAME = 64


def documents(
    node: NodeSettings, issuers: Mapping[Signer, str], issuer_kind: str, namespace: str
) -> Iterator[str]:
    """The lines of one Certificate for each of the node's certificates (cert-manager.io/v1).

    Raises ToolError for a name that cert-manager refuses.
    """
    for spec in node.certificates():
        if len(spec.common_name) > _MAX_COMMON_NAME:
            raise ToolError(
                f"{spec.name}: CN={spec.common_name} has more than {_MAX_COMMON_NAME} characters, which"
                " cert-manager refuses; use vcnode init bundle"
            )
        yield "---"
        yield from _document(spec, node.node_name, issuers[spec.signer], issuer_kind, namespace)


def _document(
    spec: CertificateSpec, node_name: str, issuer: str, issuer_kind: str, namespace: str
) -> Iterator[str]:
    # JSON is YAML: each value is quoted by rules that have no exceptions.
    name = json.dumps(f"{node_name}-{spec.name}")
    yield "apiVersion: cert-manager.io/v1"
    yield "kind: Certificate"
    yield f"metadata: {{name: {name}, namespace: {json.dumps(namespace)}}}"
    yield "spec:"
    yield f"  secretName: {name}  # as files in {spec.name}/"
    yield f"  commonName: {json.dumps(spec.common_name)}"
    if spec.organization is not None:
        yield f"  subject: {{organizations: [{json.dumps(spec.organization)}]}}"
    if spec.dns_names:
        yield f"  dnsNames: {json.dumps(list(spec.dns_names))}"
    if spec.addresses:
        yield f"  ipAddresses: {json.dumps(list(spec.addresses))}"
    yield f"  usages: [{json.dumps('server auth' if spec.is_serving else 'client auth')}, digital signature]"
    yield f"  duration: {_DURATION}"
    yield "  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}"
    yield f"  issuerRef: {{name: {json.dumps(issuer)}, kind: {issuer_kind}, group: cert-manager.io}}"
