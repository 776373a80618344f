# SPDX-License-Identifier: Apache-2.0
"""A tenant's own Prometheus, as a pod with the scrape configuration of examples/tenant-prometheus.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from devkit.pki import Leaf
from tests import examples, stock_rules
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.images import PROMETHEUS
from tests.k8s.syncer import scraper_tokens
from tests.k8s.syncer.clients import tls_secret
from tests.k8s.syncer.cluster import NODES
from tests.k8s.syncer.shops import Shop, object_of, pod

NAMESPACE = scraper_tokens.NAMESPACE
NAME = scraper_tokens.ACCOUNT
APP = f"app={NAME}"
PAGES = ("resource", "cadvisor", "probes")
WAYS = ("apiserver", "certificate", "token")

_PORT = 9090
_RBAC = "rbac.authorization.k8s.io/v1"
_ROLES = f"/apis/{_RBAC}/clusterroles"
_BINDINGS = f"/apis/{_RBAC}/clusterrolebindings"
# In the example, which has the first tenant's port.
_INTERVAL = "scrape_interval: 30s"
_TOKEN_PORT = "$1:10551"
# The job whose rows stand for those of kube-prometheus' `kubelet`.
_JOB = 'job="certificate-cadvisor"'
_RULES_FILE = "/etc/prometheus/rules.json"
# In place of kube-state-metrics, which the ring has not: the vNode of each pod.
_POD_INFO = (
    "group by (namespace, pod, node) "
    f'(label_replace(container_memory_working_set_bytes{{{_JOB}}}, "node", "$1", "instance", "(.+)"))'
)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The server of one tenant, by its HTTP API. `shop` is its namespace."""

    shop: Shop

    def api(self, path: str) -> Any:
        """The `data` of an answer of /api/v1."""
        answer = self.shop.api.get(self._path(f"api/v1/{path}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The instant vector of an expression: labels and values."""
        found = self.api(f"query?query={quote(expression)}")["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def targets(self) -> list[JsonObject]:
        """All targets that it scrapes."""
        found: list[JsonObject] = self.api("targets?state=active")["activeTargets"]
        return found

    def _path(self, path: str) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}:{_PORT}/proxy/{path}"


@contextmanager
def installed(shop: Shop, leaf: Leaf) -> Iterator[Prometheus]:
    """Prometheus in the tenant of this namespace, which is `NAMESPACE`; does not wait for it.

    `leaf` is its client certificate for vn-agent.
    """
    created: list[str] = []
    try:
        for path, value in _cluster_objects():
            shop.api.create(path, value, may_exist=True)
            created.append(f"{path}/{NAME}")
        shop.apply(*_own_objects(shop, leaf))
        yield Prometheus(shop)
    finally:
        for path in reversed(created):
            shop.api.delete(path)


def _configuration(token_port: int) -> str:
    """The example; the time between two scrapes is shorter, and each tenant has a port of its own."""
    text = examples.shown("tenant-prometheus.yaml")
    intervals = "scrape_interval: 2s, evaluation_interval: 2s"
    for shown, used in ((_INTERVAL, intervals), (_TOKEN_PORT, f"$1:{token_port}")):
        assert shown in text
        text = text.replace(shown, used)
    return f"{text}rule_files: [{_RULES_FILE}]\n"


def in_the_ring(expression: str) -> str:
    """A stock expression over the job of this ring."""
    return expression.replace(stock_rules.JOB, _JOB)


def _rules() -> str:
    rules = [
        {"record": "kube_pod_info", "expr": _POD_INFO},
        *({"record": name, "expr": in_the_ring(each)} for name, each in stock_rules.RULES.items()),
    ]
    return json.dumps({"groups": [{"name": "stock", "rules": rules}]})


def _cluster_objects() -> list[tuple[str, JsonObject]]:
    """The rights to find the nodes, and to read their pages through the API server."""
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]},
    ]
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    return [
        (_ROLES, object_of(_RBAC, "ClusterRole", NAME, rules=rules)),
        (_BINDINGS, object_of(_RBAC, "ClusterRoleBinding", NAME, roleRef=role, subjects=[account])),
    ]


def _own_objects(shop: Shop, leaf: Leaf) -> list[JsonObject]:
    token_port = scraper_tokens.port_of(shop.tenant, shop.ring.tenants)
    text = _configuration(token_port)
    return [
        object_of("v1", "ServiceAccount", NAME),
        tls_secret(NAME, leaf, shop.ring.authorities.agent_serving.cert_pem),
        object_of("v1", "ConfigMap", NAME, data={"prometheus.yml": text, "rules.json": _rules()}),
        pod(NAME, _pod_spec(), labels={"app": NAME}),
    ]


def _pod_spec() -> JsonObject:
    container = {
        "name": NAME,
        "image": PROMETHEUS,
        "imagePullPolicy": "Never",
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"name": "http", "containerPort": _PORT, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "http"}, "periodSeconds": 1},
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc/prometheus", "readOnly": True},
            {"name": "client", "mountPath": "/etc/vn-agent", "readOnly": True},
            {"name": "token", "mountPath": "/var/run/secrets/vn-agent", "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    token = {"audience": scraper_tokens.AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    return {
        "serviceAccountName": NAME,
        "nodeSelector": {"kubernetes.io/hostname": NODES[1]},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [
            {"name": "configuration", "configMap": {"name": NAME}},
            {"name": "client", "secret": {"secretName": NAME}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
            {"name": "data", "emptyDir": {}},
        ],
    }
