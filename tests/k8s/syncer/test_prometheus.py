# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus in each of two tenants scrapes vn-agent's pages in each way that tenants have."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from urllib.parse import quote

import pytest

from tests import stock_rules
from tests.k8s.ring import images
from tests.k8s.ring.api import JsonObject, TlsEndpoint
from tests.k8s.ring.cluster import TENANT_KEYS
from tests.k8s.syncer import prometheus, scraper_tokens
from tests.k8s.syncer.clients import registered
from tests.k8s.syncer.cluster import NODES, SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.prometheus import PAGES, WAYS, Prometheus
from tests.k8s.syncer.shops import Shop, pod, pod_spec

pytestmark = pytest.mark.timeout(300)

_NAMESPACE = "watched"
# A row of each page that each pod has, or each pod with a probe.
_FAMILIES = {
    "resource": "pod_memory_working_set_bytes",
    "cadvisor": "container_memory_working_set_bytes",
    "probes": "prober_probe_total",
}
_PROBED = {(_NAMESPACE, "web"), (prometheus.NAMESPACE, prometheus.NAME)}
# Rows that were read, that are to be stored, and that have a series: one of a page may still be refused.
_COUNTS = (
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    # Recorded rows, which keep their job, are named `level:metric:operations`.
    "count by (job, instance) "
    '({job=~".+",__name__!~"up|scrape_(duration_seconds|samples_.+|series_added)|.+:.+"})',
)


@dataclass(frozen=True, slots=True)
class ScrapedTenant:
    """A tenant with its Prometheus. The namespace `own`, with a pod of that name, no other tenant has."""

    shop: Shop
    own: Shop
    server: Prometheus

    def pods(self) -> dict[tuple[str, str], JsonObject]:
        """All pods that the tenant has and that run, by namespace and name."""
        items = self.shop.api.get("/api/v1/pods")["items"]
        return {_name(item): item for item in items if item["status"].get("phase") == "Running"}

    def vnodes(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.shop.api.get("/api/v1/nodes")["items"]}

    def rows(self, node: str, page: str) -> int:
        """How many rows a page has that this test reads itself."""
        path = f"/api/v1/nodes/{node}/proxy/metrics/{page}"
        lines = self.shop.api.endpoint.request("GET", path).text.splitlines()
        return sum(1 for line in lines if not line.startswith("#"))


@pytest.fixture(scope="module")
def watched(synced_ring: SyncedRing, syncer: SyncerDaemon) -> Iterator[tuple[ScrapedTenant, ScrapedTenant]]:
    """Both tenants have Prometheus on the second node, and pods on the first one."""
    archive = synced_ring.directory / "prometheus.tar"
    images.write_prometheus_image(archive, synced_ring.binaries["prometheus"])
    synced_ring.nodes[1].node.import_image(archive)
    made: list[ScrapedTenant] = []
    with ExitStack() as stack:
        for tenant in synced_ring.tenants:
            name = f"only-{secrets.token_hex(4)}"
            shop, own, home = (
                Shop(synced_ring, tenant, called, syncer)
                for called in (_NAMESPACE, name, prometheus.NAMESPACE)
            )
            for namespace in (shop, own, home):
                namespace.create()
                stack.callback(namespace.delete)
            shop.apply(_pod("web"))
            own.apply(_pod(name))
            (leaf,) = stack.enter_context(registered(home, prometheus.NAME))
            made.append(ScrapedTenant(shop, own, stack.enter_context(prometheus.installed(home, leaf))))
        for each in made:
            each.shop.wait_running("app=web")
            each.own.wait_running(f"app={each.own.namespace}")
            each.server.shop.wait_running(prometheus.APP)
        yield made[0], made[1]


def _pod(name: str) -> JsonObject:
    spec = pod_spec(nodeSelector={"kubernetes.io/hostname": NODES[0]})
    if name == "web":
        spec["containers"][0]["readinessProbe"] = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    return pod(name, spec, labels={"app": name})


def _name(item: JsonObject) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def test_prometheus_parses_every_page(watched: tuple[ScrapedTenant, ScrapedTenant]) -> None:
    """Each page of each vNode, in each way: no error, and every row of the page is stored."""
    for each in watched:

        def all_is_scraped(each: ScrapedTenant = each) -> bool:
            targets = {
                (target["labels"]["job"], target["labels"]["instance"]): (
                    target["health"],
                    target["lastError"],
                )
                for target in each.server.targets()
            }
            expected = set(product((f"{way}-{page}" for way, page in product(WAYS, PAGES)), each.vnodes()))
            is_up = _by_target(each.server, "up") == dict.fromkeys(expected, 1.0)
            return is_up and targets == dict.fromkeys(expected, ("up", ""))

        def every_row_is_stored(each: ScrapedTenant = each) -> bool:
            expected = {
                (f"{way}-{page}", node): float(each.rows(node, page))
                for page, node in product(PAGES, each.vnodes())
                for way in WAYS
            }
            expected = {target: count for target, count in expected.items() if count}
            found = [_by_target(each.server, expression) for expression in _COUNTS]
            return found == [expected] * len(_COUNTS)

        each.shop.wait("each target is up, without an error", all_is_scraped)
        each.shop.wait("rows of pages and of scrapes are as many", every_row_is_stored)
        # A page of probes may be empty.
        full = set(product((f"{way}-{page}" for way, page in product(WAYS, PAGES[:2])), each.vnodes()))
        assert full <= _by_target(each.server, "scrape_samples_scraped").keys()


def _by_target(server: Prometheus, expression: str) -> dict[tuple[str, str], float]:
    """The values by job and instance, without zeros."""
    rows = server.query(expression)
    return {(labels["job"], labels["instance"]): value for labels, value in rows if value}


def test_prometheus_has_the_tenants_own_pods(watched: tuple[ScrapedTenant, ScrapedTenant]) -> None:
    """Each way's pages have all pods of the tenant by its own names, and no others."""
    for each, (way, page) in product(watched, product(WAYS, PAGES)):

        def pods_are_own(each: ScrapedTenant = each, way: str = way, page: str = page) -> bool:
            rows = each.server.query(f'{_FAMILIES[page]}{{job="{way}-{page}"}}')
            shown = {(labels["namespace"], labels["pod"]) for labels, _ in rows}
            return shown == (_PROBED if page == "probes" else each.pods().keys())

        each.shop.wait(f"{way}-{page} has the tenant's pods", pods_are_own)


def test_stock_rules_and_dashboards_have_rows(watched: tuple[ScrapedTenant, ScrapedTenant]) -> None:
    """kubernetes-mixin's, which select containers by their image: of each container, on its vNode."""
    for each in watched:

        def rules_have_each_container(each: ScrapedTenant = each) -> bool:
            wanted = {
                (*name, container["name"], pod["spec"]["nodeName"])
                for name, pod in each.pods().items()
                for container in pod["spec"]["containers"]
            }
            labels = ("namespace", "pod", "container", "node")
            return all(
                {tuple(found.get(label) for label in labels) for found, _ in each.server.query(rule)}
                == wanted
                for rule in stock_rules.RULES
            )

        def panels_without_rows(each: ScrapedTenant = each) -> list[str]:
            panels = (prometheus.in_the_ring(panel) for panel in stock_rules.PANELS)
            return [panel for panel in panels if not each.server.query(panel)]

        def panels_have_rows(each: ScrapedTenant = each) -> bool:
            return not panels_without_rows(each)

        each.shop.wait("stock rules have each container of the tenant", rules_have_each_container)
        each.shop.wait("stock dashboards have rows", panels_have_rows)


def test_prometheus_never_names_the_other_tenant(watched: tuple[ScrapedTenant, ScrapedTenant]) -> None:
    """In no series, label value, HELP text or target that it stores."""
    one, other = watched
    for each, neighbour in ((one, other), (other, one)):
        stored = _stored(each.server)
        assert each.own.namespace in stored
        foreign = _foreign_names(each, neighbour)
        # These series come from the kubelet's page, which names both tenants.
        path = f"/api/v1/nodes/{NODES[0]}/proxy/metrics/cadvisor"
        page = each.shop.super_api.endpoint.request("GET", path).text
        assert {neighbour.own.namespace, *TENANT_KEYS} <= {name for name in foreign if name in page}
        assert {name for name in foreign if name in stored} == set()


def _stored(server: Prometheus) -> str:
    """All text that it has of its targets."""
    stored = {name: server.api(name) for name in ("metadata", "targets", "labels")}
    stored["series"] = server.api("series?match[]=" + quote('{__name__=~".+"}'))
    stored["values"] = {name: server.api(f"label/{name}/values") for name in stored["labels"]}
    return json.dumps(stored)


def _foreign_names(each: ScrapedTenant, neighbour: ScrapedTenant) -> set[str]:
    """The neighbour's names and UIDs that the tenant has not itself, and names of the super cluster.

    Names that others chose are whole values, in quotes: a short one may be a part of any text.
    """
    super_pods = each.shop.super_api.get("/api/v1/pods")["items"]
    super_uids = {item["metadata"]["uid"] for item in super_pods}
    # Each super namespace begins with its tenant's key.
    return (_names(neighbour) - _names(each)) | super_uids | {neighbour.own.namespace, *TENANT_KEYS}


def _names(each: ScrapedTenant) -> set[str]:
    pods = each.pods()
    return {json.dumps(text) for name in pods for text in name} | {
        item["metadata"]["uid"] for item in pods.values()
    }


def test_token_is_valid_at_its_tenants_port_alone(watched: tuple[ScrapedTenant, ScrapedTenant]) -> None:
    """Issuer, audience and subject are the same in both tenants."""
    tenants = [each.shop.tenant for each in watched]
    for each, tenant in product(watched, tenants):
        home = each.server.shop
        arguments = ("create", "token", scraper_tokens.ACCOUNT, f"--audience={scraper_tokens.AUDIENCE}")
        token = home.kubectl(*arguments).check().text.strip()
        endpoint = TlsEndpoint(
            home.ring.control,
            home.ring.nodes[0].node.namespace.address,
            scraper_tokens.port_of(tenant, tenants),
            home.ring.authorities.agent_serving.cert_pem,
            None,
        )
        reply = endpoint.request("GET", "/metrics/resource", headers={"Authorization": f"Bearer {token}"})
        is_own = tenant is each.shop.tenant
        assert reply.status == (200 if is_own else 401)
        assert (each.own.namespace in reply.text) is is_own
