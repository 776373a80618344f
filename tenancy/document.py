# SPDX-License-Identifier: Apache-2.0
"""The file that registers a tenant, to and from a `Tenant`.

    apiVersion: vcnode.io/v1alpha1
    kind: Tenant
    metadata: {name: <cluster key>}
    spec:
      certificateAuthority: <PEM, one or more certificates>
      clients: [{spkiSHA256: <64 hex digits>, role: apiserver | metrics}]
      clusterDomain: cluster.local

A tenant that comes by SPIFFE alone has neither authority nor clients. Reading the YAML is the
caller's; what is here takes and gives plain values.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tenancy import keys, names, x509
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN, Role, Tenant

# A rotation needs two of each, a highly available control plane a handful of clients. The bounds
# keep one tenant's file from weighing on the trust store that all tenants share.
MAX_AUTHORITIES = 16
MAX_CLIENTS = 64
# Names in name constraints: all of them may be in one chain.
MAX_CONSTRAINTS = 64
MAX_PEM_CHARS = 256 * 1024

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_SPKI = re.compile(r"[0-9A-Fa-f]{64}")


class TenantError(ValueError):
    """A tenant's file is not usable. `errors` has everything that is wrong, each with its path."""

    def __init__(self, errors: tuple[str, ...]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


def parse_tenant(document: object) -> Tenant:
    """The tenant that a parsed YAML or JSON document registers.

    Raises TenantError, with all errors at once.
    """
    found = _Errors()
    top = found.mapping("", document, {"apiVersion", "kind", "metadata", "spec"})
    if top.get("apiVersion") != keys.API_VERSION:
        found.add("apiVersion", f"must be {keys.API_VERSION}")
    if top.get("kind") != keys.TENANT_KIND:
        found.add("kind", f"must be {keys.TENANT_KIND}")
    metadata = found.mapping("metadata", top.get("metadata"), {"name"})
    spec = found.mapping("spec", top.get("spec", {}), {"certificateAuthority", "clients", "clusterDomain"})
    key = found.text("metadata.name", metadata.get("name"))
    refusal = names.check_key(key)
    if refusal is not None:
        found.add("metadata.name", refusal.reason)
    authorities = _authorities(found, spec.get("certificateAuthority"))
    clients = _clients(found, spec.get("clients"))
    if clients and not authorities:
        found.add("spec.clients", "no client can be verified without a certificateAuthority")
    domain = found.text("spec.clusterDomain", spec.get("clusterDomain", DEFAULT_CLUSTER_DOMAIN))
    if not names.is_pod_name(domain):
        found.add("spec.clusterDomain", "must be a DNS name in lower case")
    if found.errors:
        raise TenantError(tuple(found.errors))
    return Tenant(key, authorities, clients, domain)


def document_of(tenant: Tenant) -> dict[str, object]:
    """The document that `parse_tenant` reads as this tenant. Plain values, fit for JSON."""
    spec: dict[str, object] = {"clusterDomain": tenant.cluster_domain}
    if tenant.authorities:
        spec["certificateAuthority"] = "".join(_pem(der) for der in tenant.authorities)
    if tenant.clients:
        spec["clients"] = [{"spkiSHA256": spki, "role": role.value} for spki, role in tenant.clients.items()]
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.TENANT_KIND,
        "metadata": {"name": tenant.key},
        "spec": spec,
    }


def certificates(pem: str) -> tuple[bytes, ...]:
    """The DER of each certificate in `pem`, in order. Text between the blocks is ignored.

    Raises ValueError for a block that is cut off, invalid, a private key, or slow to use.
    """
    if len(pem) > MAX_PEM_CHARS:
        raise ValueError(f"longer than {MAX_PEM_CHARS} characters")
    found = tuple(_blocks(pem))
    for der in found:
        x509.subject(der)
        x509.check_key(der)
        x509.check_distribution_points(der)
    if sum(x509.name_counts(der)[1] for der in found) > MAX_CONSTRAINTS:
        raise ValueError(f"lists more than {MAX_CONSTRAINTS} names in name constraints")
    return found


def _blocks(pem: str) -> Iterator[bytes]:
    body: list[str] | None = None
    for line in map(str.strip, pem.splitlines()):
        if body is None:
            if line == _BEGIN:
                body = []
            elif line.startswith("-----"):
                raise ValueError("holds a PEM marker other than the begin of a CERTIFICATE")
        elif line == _END:
            try:
                yield base64.b64decode("".join(body), validate=True)
            except ValueError:  # binascii.Error, or text that is not ASCII
                raise ValueError("a PEM block is not base64") from None
            body = None
        elif line.startswith("-----"):
            raise ValueError("a PEM block is not closed")
        else:
            body.append(line)
    if body is not None:
        raise ValueError("a PEM block is not closed")


def _pem(der: bytes) -> str:
    text = base64.b64encode(der).decode("ascii")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def _authorities(found: "_Errors", value: object) -> tuple[bytes, ...]:
    path = "spec.certificateAuthority"
    if value is None:
        return ()
    try:
        ders = tuple(dict.fromkeys(certificates(found.text(path, value))))
        for der in ders:
            x509.canonical_subject(der)
            x509.subject_key_identifier(der)
    except ValueError as error:
        found.add(path, str(error))
        return ()
    if not ders:
        found.add(path, "holds no certificate")
    if len(ders) > MAX_AUTHORITIES:
        found.add(path, f"holds more than {MAX_AUTHORITIES} certificates")
    return ders


def _clients(found: "_Errors", value: object) -> dict[str, Role]:
    clients: dict[str, Role] = {}
    if value is None:
        return clients
    if not isinstance(value, list):
        found.add("spec.clients", "must be a list")
        return clients
    if len(value) > MAX_CLIENTS:
        found.add("spec.clients", f"has more than {MAX_CLIENTS} entries")
        return clients
    for number, item in enumerate(value):
        path = f"spec.clients[{number}]"
        entry = found.mapping(path, item, {"spkiSHA256", "role"})
        spki = found.text(f"{path}.spkiSHA256", entry.get("spkiSHA256")).lower()
        if not _SPKI.fullmatch(spki):
            found.add(f"{path}.spkiSHA256", "must be 64 hex digits")
        if spki in clients:
            found.add(f"{path}.spkiSHA256", "is in the list already")
        try:
            clients[spki] = Role(entry.get("role"))
        except ValueError:
            found.add(f"{path}.role", "must be apiserver or metrics")
    return clients


@dataclass(slots=True)
class _Errors:
    """Everything that is wrong with one document, gathered while it is read."""

    errors: list[str] = field(default_factory=list)

    def add(self, path: str, message: str) -> None:
        self.errors.append(f"{path}: {message}" if path else message)

    def mapping(self, path: str, value: object, known: set[str]) -> Mapping[object, object]:
        if not isinstance(value, dict):
            self.add(path, "must be a mapping")
            return {}
        for key in value:
            if key not in known:
                self.add(f"{path}.{key}" if path else str(key), "unknown key")
        return value

    def text(self, path: str, value: object) -> str:
        if not isinstance(value, str):
            self.add(path, "must be a string")
            return ""
        return value
