# SPDX-License-Identifier: Apache-2.0
import io

from daemonkit import logs
from daemonkit.kube.relist_guard import DistrustedRemoval, Lacking
from kubeproxy_ext.brake import Brake
from kubeproxy_ext.metrics import Metrics


def test_what_is_held_is_told_once_when_it_begins_and_when_it_is_believed() -> None:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream, clock=lambda: 0)
    metrics = Metrics()
    brake = Brake(60.0, metrics.held_lists)
    services = DistrustedRemoval(Lacking("Service", "a-shop"), "a", frozenset({"web", "db"}), 0.0)
    namespace = DistrustedRemoval(Lacking("Namespace", "a-office"), "a", frozenset(), 1.0)
    brake.tell((), [services])
    brake.tell((), [services])
    brake.tell((), [services, namespace])
    assert brake.held == {services, namespace}
    assert metrics.held_lists.labels("a").value == 2
    brake.tell((services, namespace), [])
    assert brake.held == frozenset()
    lines = [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()]
    assert lines == [
        '"a list takes all Services from a namespace with endpoints and is not believed yet"'
        " tenant=a namespace=a-shop services=2 hold_s=60.0",
        '"a list takes a whole namespace from a tenant and is not believed yet"'
        " tenant=a namespace=a-office services=0 hold_s=60.0",
        '"held for long enough, the list is believed" tenant=a namespace=a-shop',
        '"held for long enough, the list is believed" tenant=a namespace=a-office',
    ]
