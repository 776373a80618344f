# SPDX-License-Identifier: Apache-2.0
"""What the real daemons serve: each documented metric, the series that alerts wait for, and by mutual TLS."""

import http.client
import re
import ssl
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devkit.pki import Authority
from tests import promql, waiting
from tests.cases.agent_files import NODE
from tests.functional import scraped_node
from tests.functional.healthy_node import DAEMONS
from tests.functional.vcnode.sick_node import SickNode
from tests.reference import metrics

NAME = "prometheus"


@pytest.fixture(scope="module")
def scrapers() -> Authority:
    return Authority.create("scrapers")


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return dict(zip(DAEMONS, scraped_node.free_ports(len(DAEMONS)), strict=True))


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, scrapers: Authority, ports: dict[str, int]
) -> Iterator[SickNode]:
    """All daemons, each with a listener for scrapers; no runtime, so that kata-bridge is not ready."""
    node = SickNode(tmp_path_factory.mktemp("n"))
    node.start(with_daemons=False)
    certificate, key = node.files.serving.issue(NODE, sans_ip=["127.0.0.1"]).write(node.directory, "metrics")
    for name, port in ports.items():
        listener = {
            "address": "127.0.0.1",
            "port": port,
            "certificateFile": str(certificate),
            "keyFile": str(key),
            "clientCAFile": str(scrapers.write(node.directory, "scrapers")),
            "clientNames": [NAME],
        }
        node.files.write_config(name, metrics=listener)
    node.files.write_config("vn-agent", listen={"address": "127.0.0.1", "port": 0})
    try:
        with scraped_node.running(node.files):
            yield node
    finally:
        node.stop()


@pytest.fixture(scope="module")
def pages(node: SickNode) -> dict[str, str]:
    return {name: scraped_node.page(node.files, name) for name in DAEMONS}


def series(page: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_page_has_the_documented_metrics(pages: dict[str, str], daemon: str) -> None:
    """No more and no less: a metric without a series has its HELP."""
    by_programs = metrics.by_programs(metrics.registered())
    documented = {
        each.name for programs, found in by_programs.items() if daemon in programs for each in found
    }
    documented |= {each.name for each in metrics.of_the_library()}
    served = set(re.findall(r"^# TYPE (\S+) ", pages[daemon], re.MULTILINE))
    assert served == documented


def test_counters_of_alerts_exist_before_their_fault(pages: dict[str, str]) -> None:
    """A counter that comes with its first event has not increased: `increase()` misses that event."""
    missing = []
    found = [each for page in pages.values() for each in series(page)]
    for rule in promql.rules():
        inner = promql.Query(rule["alert"], " ".join(re.findall(r"increase\(([^()]*)\)", rule["expr"])))
        for selector in inner.selectors:
            values = {label: value.split("|") for label, _, value in selector.matchers}
            assert len(values) < 2, "more than one matcher: extend this test"
            for label, each in [(label, one) for label, all_ in values.items() for one in all_] or [("", "")]:
                if not any(
                    name == selector.name and (not label or labels[label] == each) for name, labels in found
                ):
                    missing.append((rule["alert"], selector.name, label, each))
    assert missing == []


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_is_scraped_by_mutual_tls(
    node: SickNode, scrapers: Authority, ports: dict[str, int], daemon: str
) -> None:
    context = ssl.create_default_context(cadata=node.files.serving.cert_pem.decode())
    scrapers.issue(NAME, usages=("client",)).load_into(context)

    def scrape() -> str:
        client = http.client.HTTPSConnection("127.0.0.1", ports[daemon], context=context, timeout=10)
        try:
            client.request("GET", "/metrics")
            return client.getresponse().read().decode()
        finally:
            client.close()

    assert f'vcnode_build_info{{daemon="{daemon}",version="' in scrape()
    waiting.wait_until(lambda: 'vcnode_process_scrapes_total{result="served"} 0.0' not in scrape())
