# SPDX-License-Identifier: Apache-2.0
"""Tenants of a directory, as lines for people and as documents."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tenancy.registry import Bad, Registry, merge
from tenancy.tenant import Tenant
from vcnode.core import certificates
from vcnode.terminal import Style, columns, day_left, styled, table

Found = Mapping[str, Tenant | Bad]


def problems(found: Found) -> dict[str, str]:
    """Problems by file: unreadable files, and what two tenants claim."""
    _, bad = merge(Registry(), found)
    return {problem.source: problem.reason for problem in bad}


def listing(found: Found, wrong: Mapping[str, str], now: dt.datetime, width: int | None = None) -> list[str]:
    """A table with a line for each file, of at most `width` characters."""
    rows: list[Sequence[str]] = [("TENANT", "FILE", "CLIENTS", "AUTHORITY UNTIL", "STATE")]
    for name, each in found.items():
        state = styled("ok", Style.GOOD)
        if name in wrong:
            state = styled("BAD", Style.BAD, f": {wrong[name]}")
        if isinstance(each, Bad):
            rows.append(("-", name, "-", "-", state))
        else:
            rows.append((each.key, name, _clients(each), _until(each, now), state))
    return table(rows, width)


def showing(
    path: str, tenant: Tenant | Bad, problem: str | None, notes: Mapping[str, str], now: dt.datetime
) -> list[str]:
    """One tenant in full."""
    if isinstance(tenant, Bad):
        reasons = tenant.reason.split("; ")
        return [f"{path}: BAD; vn-agent keeps its last good state", *(f"  {each}" for each in reasons)]
    rows = [("file", path), ("cluster domain", tenant.cluster_domain)]
    for der in tenant.authorities:
        authority = certificates.describe(der)
        rows.append(("authority", f"{authority.subject}, until {day_left(authority.expires, now)}"))
        rows.append(("", f"SPKI {authority.spki}"))
    if not tenant.authorities:
        rows.append(("authority", "none: clients are recognised by their SPIFFE name alone"))
    for spki, role in tenant.clients.items():
        rows.append(("client", f"{role.value}, {notes.get(spki, 'no note in the file')}"))
        rows.append(("", f"SPKI {spki}"))
    if not tenant.clients:
        rows.append(("client", "none"))
    if problem is not None:
        rows.append(("BAD", problem))
    return [f"tenant {tenant.key}", *indented(rows)]


def list_document(found: Found, wrong: Mapping[str, str]) -> dict[str, object]:
    return {"items": [_summary(name, each, wrong.get(name)) for name, each in found.items()]}


def show_document(
    path: str, tenant: Tenant | Bad, problem: str | None, notes: Mapping[str, str]
) -> dict[str, object]:
    whole = _summary(path, tenant, problem)
    if isinstance(tenant, Tenant):
        whole["authorities"] = [
            {"subject": each.subject, "expires": each.expires.isoformat(), "spkiSHA256": each.spki}
            for each in map(certificates.describe, tenant.authorities)
        ]
        whole["clients"] = [
            {**client, "note": notes.get(client["spkiSHA256"], "")} for client in _client_values(tenant)
        ]
    return whole


def indented(rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"  {line}" for line in columns(rows)]


def _summary(file: str, tenant: Tenant | Bad, problem: str | None) -> dict[str, object]:
    if isinstance(tenant, Bad):
        return {"file": file, "tenant": None, "problem": tenant.reason}
    return {
        "file": file,
        "tenant": tenant.key,
        "problem": problem,
        "clusterDomain": tenant.cluster_domain,
        "clients": _client_values(tenant),
    }


def _client_values(tenant: Tenant) -> list[dict[str, str]]:
    return [{"spkiSHA256": spki, "role": role.value} for spki, role in tenant.clients.items()]


def _clients(tenant: Tenant) -> str:
    counts = Counter(role.value for role in tenant.clients.values())
    return ", ".join(f"{count} {role}" for role, count in sorted(counts.items())) or "none"


def _until(tenant: Tenant, now: dt.datetime) -> str:
    if not tenant.authorities:
        return "-"
    return day_left(min(certificates.describe(der).expires for der in tenant.authorities), now)
