# SPDX-License-Identifier: Apache-2.0
"""The files of packaging/observability agree with each other, with the daemons and with the documents."""

import re
from typing import Any

import pytest
import yaml

from daemonkit.config.scrape_config import ScrapeConfig
from tests import promql
from tests.k8s.alerts.faults import FAULTS
from tests.packages import ROOT
from tests.promql import FOLDER, Query
from tests.reference import kinds, metrics

RUNBOOKS = ROOT / "docs" / "runbooks.md"
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


# ---- alerts


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in promql.rules()]
    assert len(set(names)) == len(names)
    for rule in promql.rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action", "runbook_url"}, rule["alert"]


def test_each_alert_has_its_fault() -> None:
    """tests/k8s/test_alerts.py plants it."""
    assert sorted(FAULTS) == sorted(rule["alert"] for rule in promql.rules())


def test_each_alert_has_its_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in promql.rules()]
    for rule in promql.rules():
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook_url"] == f"https://vcnode.io/docs/runbooks/#{anchor}"


# ---- dashboards


def test_each_daemon_and_the_fleet_have_a_dashboard() -> None:
    assert sorted(path.stem for path in promql.dashboards()) == sorted([*daemons(), "fleet"])


def test_dashboards_can_be_imported_together() -> None:
    found = promql.dashboards()
    assert {each["uid"] for each in found.values()} == {f"vcnode-{path.stem}" for path in found}
    for path, dashboard in found.items():
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids), path.name
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                assert panel["datasource"]["uid"] == "${datasource}", (path.name, panel["title"])
                assert panel["targets"], (path.name, panel["title"])


def test_panels_do_not_overlap() -> None:
    for path, dashboard in promql.dashboards().items():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert max(x for x, _ in cells) < 24, (path.name, panel["title"])
            assert not cells & taken, (path.name, panel["title"])
            taken |= cells


# ---- metrics


def test_alerts_and_dashboards_use_metrics_that_exist() -> None:
    assert [fault for query in promql.queries() for fault in promql.faults(query)] == []


def test_each_metric_is_on_a_dashboard() -> None:
    """Also those of the process, but for what is of no use on a graph."""
    shown = {
        promql.base_name(selector.name)
        for query in promql.queries()
        if ".json" in query.place
        for selector in query.selectors
    }
    unshown = {each.name for each in (*metrics.registered(), *metrics.of_the_library())} - shown
    assert unshown == {"process_virtual_memory_bytes", "python_info"}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("sum by (node) (rate(vcnode_vnagent_requests_total{code=~'5..'}[5m]))", []),
        ('vcnode_vnagent_request_total{code="200"}', ["x: no metric vcnode_vnagent_request_total"]),
        ('up{node="a"} == 0', []),
        (
            'vcnode_vnagent_requests_total{status="200"}',
            ["x: vcnode_vnagent_requests_total has no label status"],
        ),
        ("sum by (tenants) (vcnode_vnagent_requests_total)", ["x: no label tenants"]),
        ("vcnode_vnagent_request_duration_seconds", ["x: no metric vcnode_vnagent_request_duration_seconds"]),
        ('vcnode_vnagent_request_duration_seconds_bucket{le="1.0"}', []),
    ],
)
def test_unknown_metrics_and_labels_are_found(text: str, faults: list[str]) -> None:
    assert promql.faults(Query("x", text)) == faults
