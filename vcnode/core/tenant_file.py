# SPDX-License-Identifier: Apache-2.0
"""The text of a tenant's file, and its changes when a client is added or removed.

A file holds hashes of public keys. A comment beside each names the certificate's subject; edits keep
these comments.
"""

import dataclasses
import re
from collections.abc import Mapping

from daemonkit.config import yaml_values
from tenancy import names
from tenancy.document import TenantError, document_of, parse_tenant
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN, Role, Tenant
from vcnode.core.certificates import Offer
from vcnode.terminal import ToolError, printable

# Of an SPKI hash that a person types: 32 bits, which must match one client.
MIN_SPKI_CHARS = 8

_NOTE = re.compile(r'\s*+-\s++spkiSHA256:\s*+"?([0-9A-Fa-f]{64})"?\s++#\s*+(\S.*+)')


def with_client(
    tenant: Tenant | None, key: str, offer: Offer, role: Role, cluster_domain: str | None
) -> Tenant:
    """The tenant with one more client, and with its authorities if they are new.

    Old clients and authorities stay: they overlap with the new ones during a rotation. `tenant` is None
    for a new tenant. Raises ToolError instead of changing a role or the cluster domain.
    """
    refusal = names.check_key(key)
    if refusal is not None:
        raise ToolError(refusal.reason)
    if tenant is None:
        tenant = Tenant(key, (), {}, cluster_domain or DEFAULT_CLUSTER_DOMAIN)
    if cluster_domain is not None and cluster_domain != tenant.cluster_domain:
        raise ToolError(
            f"tenant {key} has the cluster domain {tenant.cluster_domain}, not {cluster_domain};"
            " leave out --cluster-domain, or remove the tenant and add it again"
        )
    known = tenant.clients.get(offer.spki)
    if known is not None and known is not role:
        raise ToolError(
            f"client {offer.spki} has the role {known.value} already; to change that, remove it first"
        )
    authorities = tuple(dict.fromkeys((*tenant.authorities, *offer.authorities)))
    changed = dataclasses.replace(
        tenant, authorities=authorities, clients={**tenant.clients, offer.spki: role}
    )
    return _checked(changed)


def without_client(tenant: Tenant, spki_start: str) -> tuple[Tenant, str]:
    """The tenant without the client whose hash starts so, and its hash. Raises ToolError."""
    wanted = spki_start.lower()
    if len(wanted) < MIN_SPKI_CHARS:
        raise ToolError(f"give at least {MIN_SPKI_CHARS} digits of the client's SPKI hash")
    found = [spki for spki in tenant.clients if spki.startswith(wanted)]
    if len(found) != 1:
        count = "no client" if not found else f"{len(found)} clients"
        raise ToolError(f"tenant {tenant.key} has {count} whose SPKI hash starts with {wanted}")
    clients = {spki: role for spki, role in tenant.clients.items() if spki != found[0]}
    return dataclasses.replace(tenant, clients=clients), found[0]


def render(tenant: Tenant, notes: Mapping[str, str]) -> str:
    """The file's text; `notes` are comments by SPKI hash."""
    document = document_of(tenant)
    spec = document["spec"]
    assert isinstance(spec, dict)  # noqa: S101 - narrows a plain value for the type checker
    lines = [
        f"apiVersion: {document['apiVersion']}",
        f"kind: {document['kind']}",
        "metadata:",
        # All in quotes: a key may look like a number, a hash like 1e5.
        f'  name: "{tenant.key}"',
        "spec:",
        f'  clusterDomain: "{tenant.cluster_domain}"',
    ]
    if tenant.clients:
        lines.append("  clients:")
    for spki, role in tenant.clients.items():
        note = f"  # {printable(notes[spki])}" if notes.get(spki) else ""
        lines += [f'    - spkiSHA256: "{spki}"{note}', f"      role: {role.value}"]
    if tenant.authorities:
        lines.append("  certificateAuthority: |")
        lines += [f"    {line}" for line in str(spec["certificateAuthority"]).splitlines()]
    text = "\n".join(lines) + "\n"
    if parse_tenant(yaml_values.decode(text)) != tenant:
        raise AssertionError(f"the file of tenant {tenant.key} would be read as another tenant")
    return text


def notes_of(text: str) -> dict[str, str]:
    """The comments beside the clients of a file, by SPKI hash."""
    found = (_NOTE.fullmatch(line) for line in text.splitlines())
    return {match[1].lower(): match[2].rstrip() for match in found if match}


def _checked(tenant: Tenant) -> Tenant:
    """The tenant as its file is read. Raises ToolError, for instance if it exceeds a limit."""
    try:
        return parse_tenant(document_of(tenant))
    except TenantError as error:
        raise ToolError(str(error)) from None
