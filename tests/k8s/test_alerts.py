# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own promtool: each alert is fired by its fault, and by no other; at rest there is none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests import promql
from tests.functional import scraped_node
from tests.functional.vcnode.sick_node import SickNode
from tests.k8s import build
from tests.k8s.alerts.faults import FAULTS, AlertFault
from tests.promql import FOLDER

ON_NODE = ("kata-bridge", "kubeproxy-ext", "dnsconfig", "vn-agent")
TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def promtool(request: pytest.FixtureRequest) -> str:
    """The program; it needs no root and none of the other components."""
    version = build.go_version()
    cache: Path = request.config.getoption("--k8s-cache", build.DEFAULT_CACHE)
    binaries, missing = build.find_binaries(cache, version) if version else (build.Binaries({}), ["promtool"])
    if "promtool" in missing:
        pytest.skip("k8s ring: promtool not built: run python3 tests/k8s/build.py")
    return binaries["promtool"]


def groups() -> dict[str, Any]:
    """A file of rules for Prometheus."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"]
    return found


RULES = {rule["alert"]: rule for group in groups()["groups"] for rule in group["rules"]}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    document = groups()
    for group in document["groups"]:
        for rule in group["rules"]:
            # promtool compares them too, and they have figures.
            del rule["annotations"]
    path.write_text(yaml.safe_dump(document))
    return path


def run(promtool: str, *words: str | Path) -> str:
    """Its output; the test fails when it does."""
    done = subprocess.run(
        [promtool, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def world(
    series: Mapping[str, str], at: str, fired: Mapping[str, Sequence[Mapping[str, str]]]
) -> dict[str, Any]:
    """A test of promtool: these series, and the labels of the only alerts that fire."""
    expected = [
        {
            "eval_time": at,
            "alertname": name,
            "exp_alerts": [{"exp_labels": dict(labels)} for labels in fired.get(name, ())],
        }
        for name in RULES
    ]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": expected,
    }


def judge(promtool: str, rules: Path, *worlds: dict[str, Any]) -> None:
    document = {"rule_files": [rules.name], "evaluation_interval": "5m", "tests": worlds}
    path = rules.with_name("tests.yaml")
    path.write_text(json.dumps(document))
    run(promtool, "test", "rules", "--ignore-unknown-fields", path)


def test_the_rules_are_valid(promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(groups()))
    assert f"{len(RULES)} rules found" in run(promtool, "check", "rules", path)


def test_the_jobs_are_valid(promtool: str) -> None:
    """Syntax alone: the files that they name are on the machine of Prometheus."""
    run(promtool, "check", "config", "--syntax-only", FOLDER / "prometheus.yaml")


@pytest.mark.parametrize("name", FAULTS)
def test_its_fault_alone_fires_an_alert(promtool: str, rules: Path, name: str) -> None:
    fault: AlertFault = FAULTS[name]
    judge(promtool, rules, world(fault.series, fault.at, {name: [fault.labels]}))


def test_no_alert_fires_at_rest(promtool: str, rules: Path) -> None:
    judge(promtool, rules, *(world(fault.rest or fault.series, fault.at, {}) for fault in FAULTS.values()))


# ---- real daemons


def scraped(pages: Mapping[str, str]) -> dict[str, str]:
    """The series of these pages, by daemon, as if they had not changed for 200 minutes."""
    found = {}
    for job, page in pages.items():
        target = {"job": job, "node": "node-1", "instance": job}
        found[f"up{labelled(target)}"] = "1x200"
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name + labelled(target | sample.labels)] = f"{sample.value:f}x200"
    return found


def labelled(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickNode]:
    """Its guests come from files: a runtime with NRI is of the other tests of this ring."""
    node = SickNode(tmp_path_factory.mktemp("n"))
    node.start(with_daemons=False)
    node.files.documents["kata-bridge"].pop("gate")
    node.files.write_config("kata-bridge", sandboxes={"directory": str(node.directory / "guests")})
    node.files.write_config("vn-agent", listen={"address": "127.0.0.1", "port": scraped_node.free_port()})
    yield node
    node.stop()


def test_daemons_that_are_well_fire_no_alert(promtool: str, rules: Path, node: SickNode) -> None:
    with scraped_node.running(node.files, ON_NODE, until="/readyz"):
        pages = {name: scraped_node.page(node.files, name) for name in ON_NODE}
    judge(promtool, rules, world(scraped(pages), "180m", {}))


def test_daemons_without_their_peers_fire_alerts(promtool: str, rules: Path, node: SickNode) -> None:
    """No API server and no kata-bridge; vn-agent has neither kubelet nor a source that it can read."""
    node.stop_apiserver()
    node.kubelet.pause()
    daemons = [name for name in ON_NODE if name != "kata-bridge"]
    with scraped_node.running(node.files, daemons):
        pages = {name: scraped_node.page(node.files, name) for name in daemons}
    away = {"node": "node-1", "severity": "critical"}
    not_ready = [away | {"job": name, "instance": name} for name in daemons]
    fired = {
        "VcnodeNotReady": not_ready,
        "KubeproxyExtBridgeAway": [away],
        "DnsConfigBridgeAway": [away],
    }
    judge(promtool, rules, world(scraped(pages), "180m", fired))


# ---- dashboards


def test_expressions_of_dashboards_are_valid(promtool: str, tmp_path: Path) -> None:
    """As recording rules, with Grafana's variables replaced."""
    found = [query for query in promql.queries() if "$" not in query.place.partition(": ")[2]]
    texts = [query.text.replace("$__rate_interval", "5m").replace("$node", ".*") for query in found]
    rules = [{"record": "x:y", "labels": {"n": str(n)}, "expr": text} for n, text in enumerate(texts)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(promtool, "check", "rules", path)
