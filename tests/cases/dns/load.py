# SPDX-License-Identifier: Apache-2.0
"""Reads resolver cases, and builds their objects; an unknown key is an error.

Tenants' keys get a prefix, so that many cases fit into one super cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dnsconfig.resolve.waiting import WaitReason
from tests.unit.dnsconfig import objects
from tests.unit.dnsconfig.objects import Json

ISOLATION = Path(__file__).resolve().parent / "isolation.yaml"
# The prefix of addresses that no pod may have as a server.
FORBIDDEN_PREFIX = "6.6.6."
# The node's own file, in all cases.
HOST = "nameserver 192.0.2.1\nsearch example.org\n"

_KEYS = frozenset({"id", "tenants", "objects", "pod", "servers", "waits", "nothing", "api"})
_POD_KEYS = frozenset({"of", "network", "times", "namespace", "where", "labels", "annotations", "spec"})
_OBJECT_KEYS = {
    "Namespace": frozenset({"of", "namespace", "called", "labels"}),
    "Network": frozenset(
        {"of", "network", "namespace", "where", "phase", "ipam", "dnsServiceIP", "annotations"}
    ),
    "Service": frozenset(
        {"of", "network", "name", "namespace", "where", "ips", "external", "labels", "annotations"}
    ),
}
_DEFAULT_POD: Json = {"of": "a", "network": "blue"}


class DnsFileError(Exception):
    """The file is malformed; the text names the case."""


@dataclass(frozen=True, slots=True)
class DnsCase:
    """One case. Exactly one of `servers`, `waits` and `is_nothing` is its pod's expected outcome."""

    id: str
    tenants: Mapping[str, Mapping[str, str]]
    extra: tuple[Json, ...]
    pod_spec: Json
    servers: tuple[str, ...] = ()
    waits: WaitReason | None = None
    is_nothing: bool = False
    # A real API server accepts the objects and the pod.
    is_possible: bool = True

    def items(self, prefix: str = "") -> list[Json]:
        """All objects but the pod."""
        found = []
        for key, networks in self.tenants.items():
            found += objects.tenant(prefix + key, **networks)
        for each in self.extra:
            made = _object(each, prefix)
            # A later object replaces one of the tenant, for example with another label.
            found = [other for other in found if _identity(other) != _identity(made)] + [made]
        return found

    def pod(self, prefix: str = "") -> Json:
        """The case's pod, not yet bound to a node."""
        spec = self.pod_spec
        tenant = prefix + spec["of"] if spec["of"] else ""
        network = spec.get("network")
        made = objects.pod(
            tenant,
            "web-0",
            tenant_namespace=spec.get("namespace", "shop"),
            network=None if network is None else network * spec.get("times", 1),
            labels=spec.get("labels"),
            annotations=spec.get("annotations"),
            **spec.get("spec", {}),
        )
        if "where" in spec:
            made["metadata"]["namespace"] = _super_namespace(spec["where"], prefix)
        made["metadata"]["uid"] = f"uid-{prefix}{self.id}"
        made["metadata"]["name"] = f"{prefix}{self.id}"[:253]
        return made


def load(path: Path = ISOLATION) -> list[DnsCase]:
    """Read one file. Raises DnsFileError."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if document.keys() != {"version", "cases"} or document["version"] != 1:
        raise DnsFileError(f"{path}: expected version 1 and cases")
    found = [_case(each) for each in document["cases"]]
    ids = [case.id for case in found]
    if len(set(ids)) != len(ids):
        raise DnsFileError(f"{path}: an id occurs twice")
    return found


def _case(value: Json) -> DnsCase:
    name = value.get("id", "?")
    _check(name, value, _KEYS)
    _check(name, value.get("pod", {}), _POD_KEYS)
    for each in value.get("objects", ()):
        _check(name, {key: item for key, item in each.items() if key != "kind"}, _OBJECT_KEYS[each["kind"]])
    if sum(key in value for key in ("servers", "waits", "nothing")) != 1:
        raise DnsFileError(f"{name}: expected one of servers, waits and nothing")
    if value.get("api", "refuses") != "refuses":
        raise DnsFileError(f"{name}: api: {value['api']!r}")
    return DnsCase(
        name,
        value["tenants"],
        tuple(value.get("objects", ())),
        value.get("pod", _DEFAULT_POD),
        tuple(value.get("servers", ())),
        WaitReason(value["waits"]) if "waits" in value else None,
        bool(value.get("nothing")),
        is_possible="api" not in value,
    )


def _check(name: str, value: Json, known: frozenset[str]) -> None:
    if unknown := value.keys() - known:
        raise DnsFileError(f"{name}: unknown {', '.join(sorted(unknown))}")


def _object(value: Json, prefix: str) -> Json:
    tenant = prefix + value["of"] if value["of"] else ""
    where = (
        _super_namespace(value["where"], prefix)
        if "where" in value
        else f"{tenant}-{value.get('namespace', 'kube-system')}"
    )
    match value["kind"]:
        case "Namespace":
            return _namespace(value, tenant, prefix)
        case "Network":
            made = objects.network(
                tenant,
                value["network"],
                value.get("phase", "Ready"),
                where=where,
                ipam=value.get("ipam", "Arktos"),
                dns_service_ip=value.get("dnsServiceIP", ""),
                annotations=_prefixed(value, prefix),
            )
            made["metadata"]["namespace"] = where  # also the empty one
            return made
        case _:
            return _service(value, tenant, where, prefix)


def _namespace(value: Json, tenant: str, prefix: str) -> Json:
    made = objects.namespace(
        tenant, value.get("namespace", ""), called=_super_namespace(value.get("called", ""), prefix)
    )
    if not tenant:
        made["metadata"]["annotations"] = {}
    made["metadata"]["labels"] = value.get("labels", {})
    return made


def _service(value: Json, tenant: str, where: str, prefix: str) -> Json:
    made = objects.service(
        tenant,
        value["network"],
        *value.get("ips", ()),
        where=where,
        labels=value.get("labels"),
        annotations=_prefixed(value, prefix),
    )
    if "name" in value:
        made["metadata"]["name"] = value["name"]
    if "external" in value:
        made["spec"] |= {"type": "ExternalName", "externalName": value["external"]}
        if "ips" not in value:
            del made["spec"]["clusterIP"], made["spec"]["clusterIPs"]
    return made


def _prefixed(value: Json, prefix: str) -> dict[str, str]:
    """The annotations; their values are tenants' keys."""
    return {key: prefix + text for key, text in value.get("annotations", {}).items()}


def _super_namespace(name: str, prefix: str) -> str:
    """The name of a super namespace; one that begins with a tenant's key gets the prefix."""
    return prefix + name if name.startswith(("a-", "b-")) else name


def _identity(item: Json) -> tuple[Any, ...]:
    meta = item["metadata"]
    return item["kind"], meta.get("namespace", ""), meta["name"]
