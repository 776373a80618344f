# SPDX-License-Identifier: Apache-2.0
"""The certificate that a foreign API server shows to kubelets: where it is found, and what is written for
vn-agent.

vn-agent serves a tenant's API server by the public key of this certificate, below the authority that signed
it. Only public parts are read and written. Those of Kamaji and vcluster are in Secrets; those of k3s and of
Cluster API are files on the machines of the control plane, so a person has to give them.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence

import msgspec

from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tenant_operator.pki.facts import facts_of
from tenant_operator.provisioners.imported.shapes import SourceShape
from tenant_operator.provisioners.imported.source import SourceChoice

CERTIFICATE_KEY, AUTHORITY_KEY = "tls.crt", "ca.crt"


class CertificatePlace(msgspec.Struct, frozen=True):
    """Two keys of Secrets in the VirtualCluster's namespace."""

    certificate_secret: str
    certificate_key: str
    authority_secret: str
    authority_key: str


class KubeletClient(msgspec.Struct, frozen=True):
    """What vn-agent is to know, as PEM; `place` is where it was found."""

    certificate_pem: str
    authority_pem: str
    place: CertificatePlace


class KubeletClientMissing(msgspec.Struct, frozen=True):
    """Why there is none, with what to run: for condition NodesServing."""

    message: str


def given_secret(virtual_cluster: str) -> str:
    """The Secret by which a person gives the certificate."""
    return f"{virtual_cluster}-kubelet-client"


def places(choice: SourceChoice, virtual_cluster: str) -> tuple[CertificatePlace, ...]:
    """Where it is looked for, in this order: what a person gave comes first."""
    given = given_secret(virtual_cluster)
    found = [CertificatePlace(given, CERTIFICATE_KEY, given, AUTHORITY_KEY)]
    kubeadm = "apiserver-kubelet-client.crt"
    match choice.shape:
        case SourceShape.KAMAJI:
            leaf, authority = f"{choice.owner}-api-server-kubelet-client-certificate", f"{choice.owner}-ca"
            found.append(CertificatePlace(leaf, kubeadm, authority, "ca.crt"))
        case SourceShape.VCLUSTER:
            secret = f"{choice.owner}-certs"
            found.append(CertificatePlace(secret, kubeadm, secret, "ca.crt"))
    return tuple(found)


def kubelet_client(
    choice: SourceChoice, virtual_cluster: str, namespace: str, values: Mapping[tuple[str, str], str]
) -> KubeletClient | KubeletClientMissing:
    """The first place that has both parts. `values` are base64, by Secret and key, as far as they exist."""
    problems = []
    for place in places(choice, virtual_cluster):
        certificate = values.get((place.certificate_secret, place.certificate_key))
        authority = values.get((place.authority_secret, place.authority_key))
        if certificate is None or authority is None:
            continue
        try:
            return KubeletClient(_checked(certificate), _checked(authority), place)
        except ValueError as error:
            problems.append(f"Secret {namespace}/{place.certificate_secret}: {error}")
    why = "; ".join(problems) or f"{choice.shape} keeps it in no Secret that is here"
    command = (
        f"kubectl -n {namespace} create secret generic {given_secret(virtual_cluster)}"
        f" --from-file={CERTIFICATE_KEY}=FILE --from-file={AUTHORITY_KEY}=FILE"
    )
    return KubeletClientMissing(
        f"the certificate that this API server shows to kubelets is not known ({why}), so exec, logs and"
        f" metrics of its pods fail. Run: {command}, with {_files(choice.shape)}"
    )


def registration(
    certificate_pem: str, authority_pem: str, key: str, labels: Mapping[str, str]
) -> tuple[Object, Object]:
    """The Secrets of the root namespace that vn-agent reads: public parts alone."""
    return (
        _secret(key, names.REGISTERED_AUTHORITY, authority_pem, labels),
        _secret(key, names.REGISTERED_CLIENT, certificate_pem, labels),
    )


def _files(shape: SourceShape) -> str:
    """Which files of the control plane have the parts."""
    kubeadm, k3s = "/etc/kubernetes/pki", "/var/lib/rancher/k3s/server/tls"
    match shape:
        case SourceShape.K3K:
            return f"{k3s}/client-kube-apiserver.crt and {k3s}/client-ca.crt of its server"
        case SourceShape.PLAIN:
            return (
                "the file of its flag --kubelet-client-certificate and the authority that signed it (k3s:"
                f" client-kube-apiserver.crt and client-ca.crt of {k3s})"
            )
        case _:
            return f"{kubeadm}/apiserver-kubelet-client.crt and {kubeadm}/ca.crt of its server"


def _checked(value: str) -> str:
    """The PEM text; of a certificate that can be read."""
    try:
        text = base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("holds no certificate in PEM") from error
    if "PRIVATE KEY" in text:
        raise ValueError("has a private key beside the certificate; leave it out")
    try:
        facts_of(text.encode())
    except ValueError as error:
        raise ValueError("holds no certificate in PEM") from error
    return text


def _secret(namespace: str, name: str, pem: str, labels: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "data": {"tls.crt": base64.b64encode(pem.encode()).decode()},
    }


def secrets_to_read(found: Sequence[CertificatePlace]) -> frozenset[str]:
    """The names of the Secrets that are looked at."""
    return frozenset(name for place in found for name in (place.certificate_secret, place.authority_secret))
