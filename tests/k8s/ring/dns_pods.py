# SPDX-License-Identifier: Apache-2.0
"""Pods with random DNS settings, and DNS settings of nodes. Repeatable by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.k8s.ring.api import JsonObject

# What a pod, the node and the cluster may all name, so that there is something to leave out.
_SEARCHES = (
    *("cluster.local", "svc.cluster.local", "dns-oracle.svc.kubernetes.io", "host.domain", "corp.example"),
    *("a.example", "b.example", "C.example".lower(), "under_score.example", "dotted.example.", "."),
)
_SERVERS = ("10.32.0.10", "203.0.113.1", "203.0.113.2", "203.0.113.3", "2001:db8::53", "169.254.20.10")
_OPTIONS = ("ndots", "timeout", "attempts", "rotate", "debug", "single-request", "edns0")
_POLICIES = ("ClusterFirst", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")

# core/validation, 1.34: the API server's limits of a pod. A kubelet truncates what exceeds them in sum.
_MAX_SERVERS, _MAX_SEARCHES, _MAX_SEARCH_CHARACTERS, _MAX_PATH = 3, 32, 2048, 253


@dataclass(frozen=True, slots=True)
class KubeletDns:
    """The DNS settings of kubelet and dnsconfig: servers, domain, and the node's resolv.conf."""

    name: str
    servers: tuple[str, ...]
    domain: str
    host_file: str | None

    def kubelet(self, host_path: str) -> dict[str, object]:
        """The fields of a KubeletConfiguration."""
        return {
            "clusterDNS": list(self.servers),
            "clusterDomain": self.domain,
            "resolvConf": "" if self.host_file is None else host_path,
        }


SETTINGS = (
    KubeletDns(
        "plain",
        ("10.32.0.10",),
        "cluster.local",
        "# the node's\nnameserver 8.8.8.8\nsearch host.domain\noptions timeout:2\n",
    ),
    KubeletDns(
        "crowded",
        ("10.32.0.10", "fd00:32::a"),
        "kubernetes.io",
        "domain ignored.example\nsearch first.example\nnameserver 2001:db8::1\nnameserver\t8.8.8.8\n"
        "nameserver 8.8.4.4\nnameserver 1.1.1.1\n;comment\noptions ndots:2 rotate\n"
        f"search host.domain . tail. {' '.join(f'h{n}.example' for n in range(26))}\n"
        "options ndots:3 edns0\nsortlist 10.0.0.0\n",
    ),
    KubeletDns("bare", ("10.32.0.10",), "", None),
)


def pod_specs(rng: random.Random, count: int) -> list[JsonObject]:
    """The DNS side of `count` pods' specs, each of which an API server takes."""
    return [_spec(rng) for _ in range(count)]


def _spec(rng: random.Random) -> JsonObject:
    spec: JsonObject = {"dnsPolicy": rng.choice(_POLICIES)}
    if rng.random() < 0.3:
        spec["hostNetwork"] = True
    if spec["dnsPolicy"] == "None" or rng.random() < 0.7:
        spec["dnsConfig"] = _settings(rng, least=1 if spec["dnsPolicy"] == "None" else 0)
    if rng.random() < 0.3:
        spec |= {"hostname": "shop-0", "subdomain": "shop"}
    return spec


def _settings(rng: random.Random, *, least: int) -> JsonObject:
    options = [_option(rng) for _ in range(rng.choice((0, 0, 1, 2, 5)))]
    return {
        "nameservers": rng.sample(_SERVERS, rng.randint(least, _MAX_SERVERS)),
        "searches": _searches(rng),
        "options": options,
    }


def _option(rng: random.Random) -> JsonObject:
    name = rng.choice(_OPTIONS)
    value = rng.choice((None, "", str(rng.randint(1, 9))))
    return {"name": name} if value is None else {"name": name, "value": value}


def _searches(rng: random.Random) -> list[str]:
    match rng.choice(("none", "few", "few", "many", "long")):
        case "none":
            return []
        case "few":
            return rng.choices(_SEARCHES, k=rng.randint(1, 5))
        case "many":
            return [f"s{n}.example" for n in range(rng.randint(20, _MAX_SEARCHES))]
        case _:
            return _long_searches(rng)


def _long_searches(rng: random.Random) -> list[str]:
    """Paths of up to the greatest length, as many as the API server takes with the blanks between."""
    found: list[str] = []
    while True:
        size = rng.choice((120, 200, _MAX_PATH))
        path = (f"l{len(found)}." + "abcdefghi." * 30)[:size].rstrip(".") + "z" * 3
        path = path[-_MAX_PATH:].lstrip(".")
        if len(" ".join([*found, path])) > _MAX_SEARCH_CHARACTERS:
            return found
        found.append(path)
