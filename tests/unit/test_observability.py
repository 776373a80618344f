# SPDX-License-Identifier: Apache-2.0
"""The files of packaging/observability agree with each other, with the daemons and with the documents."""

import re
from typing import Any

import yaml

from daemonkit.config.scrape_config import ScrapeConfig
from tests.packages import ROOT
from tests.reference import kinds

FOLDER = ROOT / "packaging" / "observability"
DOCUMENT = ROOT / "docs" / "observability.md"


def daemons() -> list[str]:
    """Those whose configuration has a listener for scrapers."""
    fields = {kind.reader: getattr(kind.cls, "__dataclass_fields__", {}) for kind in kinds.KINDS}
    return sorted(reader for reader, each in fields.items() if "metrics" in each)


def ports() -> dict[str, int]:
    """Of the examples, from the document's table."""
    rows = re.findall(r"^\| ([a-z-]+) \| (\d+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    return {name: int(port) for name, port in rows}


def jobs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    return found


def monitors() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "podmonitor.yaml").read_text()))


def test_each_daemon_has_a_port_of_its_own() -> None:
    assert sorted(ports()) == daemons()
    assert len(set(ports().values())) == len(ports())


def test_prometheus_scrapes_each_daemon_at_its_port() -> None:
    scraped = {}
    for job in jobs():
        targets = {each.get("target_label"): each for each in job["relabel_configs"]}
        scraped[job["job_name"]] = int(targets["__address__"]["replacement"].removeprefix("$1:"))
        assert "node" in targets, job["job_name"]
        assert job["scheme"] == "https"
        assert {"ca_file", "cert_file", "key_file"} <= job["tls_config"].keys()
    assert scraped == ports()


def test_the_operator_scrapes_each_daemon_at_its_port() -> None:
    scraped = {}
    for each in monitors():
        spec, name = each["spec"], each["metadata"]["name"]
        if each["kind"] == "ScrapeConfig":
            targets = {one["targetLabel"]: one for one in spec["relabelings"]}
            scraped[spec["jobName"]] = int(targets["__address__"]["replacement"].removeprefix("$1:"))
            tls = spec["tlsConfig"]
        else:
            (endpoint,) = spec["podMetricsEndpoints"]
            targets = {one["targetLabel"]: one for one in endpoint["relabelings"]}
            scraped[spec["selector"]["matchLabels"][spec["jobLabel"]]] = endpoint["portNumber"]
            tls = endpoint["tlsConfig"]
        assert "node" in targets, name
        assert {"ca", "cert", "keySecret"} <= tls.keys(), name
    assert scraped == ports()


def test_the_documents_configuration_is_read() -> None:
    (block,) = re.findall(r"^```yaml\n(metrics:.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    kind = next(each for each in kinds.KINDS if each.reader == "vn-agent")
    example = yaml.safe_load((ROOT / "examples" / kind.example).read_text())
    config = kind.parse(example | yaml.safe_load(block))
    scrapes = getattr(config, "metrics", None)
    assert isinstance(scrapes, ScrapeConfig)
    assert (scrapes.port, scrapes.client_names) == (ports()["vn-agent"], ("prometheus",))
