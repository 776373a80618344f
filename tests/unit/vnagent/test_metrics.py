# SPDX-License-Identifier: Apache-2.0
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
