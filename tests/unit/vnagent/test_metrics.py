# SPDX-License-Identifier: Apache-2.0
from daemonkit.metrics import Distribution
from tests.metric_samples import samples_of
from vnagent.metrics import AgentMetrics
from vnagent.transport.handler import EndReason


def test_a_client_that_left_has_not_failed_its_handshake() -> None:
    metrics = AgentMetrics()
    left = {EndReason.CLOSED, EndReason.RESET}
    for reason in EndReason:
        metrics.count_handshake_failure(reason)
    counted = samples_of(metrics.registry)["vcnode_vnagent_handshake_failures_total"]
    assert counted == len(set(EndReason) - left)


def test_durations_are_counted_by_classes() -> None:
    metrics = AgentMetrics()
    for endpoint, status in (("containerLogs", 200), ("exec", 101), ("pods", 404), ("malformed", 400)):
        metrics.count_request("ten-a", endpoint, status, 0.003)
    metrics.count_request("ten-b", "containerLogs", 206, 0.03)
    name = "vcnode_vnagent_request_duration_seconds"
    (found,) = (each for each in metrics.registry.snapshot() if each.name == name)
    assert {
        labels: each.buckets[-1][1] for labels, each in found.series if isinstance(each, Distribution)
    } == {
        ("log", "2xx"): 2,
        ("stream", "1xx"): 1,
        ("page", "4xx"): 1,
        ("other", "4xx"): 1,
    }
