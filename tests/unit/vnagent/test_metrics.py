# SPDX-License-Identifier: Apache-2.0
from daemonkit.metrics import MAX_CELLS, OVERFLOW, Distribution, Registry
from tests.metric_samples import samples_of
from vnagent.core.requests import Endpoint
from vnagent.metrics import AgentMetrics
from vnagent.transport.handler import EndReason


def test_a_tenant_leaves_the_overflow_once_there_is_room() -> None:
    metrics = AgentMetrics()
    for number in range(MAX_CELLS):
        metrics.count_request(f"ten-{number}", Endpoint.CONTAINER_LOGS, 200, 0.0)
    metrics.count_request("late", Endpoint.CONTAINER_LOGS, 200, 0.0)
    for tenant in ("ten-0", "ten-1"):  # the overflow has a series, too
        metrics.forget_tenants({tenant})
    metrics.count_request("late", Endpoint.CONTAINER_LOGS, 200, 0.0)
    (requests,) = (
        each for each in metrics.registry.snapshot() if each.name == "vcnode_vnagent_requests_total"
    )
    assert dict(requests.series)["late", "containerLogs", "200"] == 1


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


def test_a_removed_tenants_series_end() -> None:
    """There is a bound on series: tenants that came and went once took those of all later ones."""
    metrics = AgentMetrics()
    for tenant in ("ten-a", "ten-b", None):
        metrics.count_request(tenant, "pods", 200, 0.003)
        metrics.count_limited(tenant, "too-many-requests")
    metrics.forget_tenants({"ten-a"})
    metrics.count_request("ten-b", "pods", 200, 0.003)
    of_tenants = ("vcnode_vnagent_requests_total", "vcnode_vnagent_limited_requests_total")
    found = {
        name: count for name, count in samples_of(metrics.registry).items() if name.startswith(of_tenants)
    }
    assert found == {
        'vcnode_vnagent_requests_total{code="200",endpoint="pods",tenant="ten-b"}': 2,
        'vcnode_vnagent_requests_total{code="200",endpoint="pods",tenant=""}': 1,
        'vcnode_vnagent_limited_requests_total{reason="too-many-requests",tenant="ten-b"}': 1,
        'vcnode_vnagent_limited_requests_total{reason="too-many-requests",tenant=""}': 1,
    }
    metrics.count_request("ten-a", "pods", 200, 0.003)
    name = 'vcnode_vnagent_requests_total{code="200",endpoint="pods",tenant="ten-a"}'
    assert samples_of(metrics.registry)[name] == 1


def test_tenants_that_come_and_go_take_no_series() -> None:
    metrics = AgentMetrics(Registry(max_cells=10))
    for number in range(20):
        metrics.count_request(f"visitor-{number}", "pods", 200, 0.003)
        metrics.forget_tenants({f"visitor-{number}"})
    metrics.count_request("ten-a", "pods", 200, 0.003)
    assert not [name for name in samples_of(metrics.registry) if OVERFLOW in name]
