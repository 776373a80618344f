# SPDX-License-Identifier: Apache-2.0
"""A guest without an agent: kata-bridge, in its sandbox, enters the namespace and writes the rules there."""

from __future__ import annotations

from collections.abc import Iterator

from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.systemd import lifecycle, workload
from tests.systemd.site import Site

# Another name of runc.
_HANDLER = "kata-stock"
_CONFIG = "/etc/vcnode/kata-bridge.yaml"
_CHANGE = f"""
cp --preserve=all {_CONFIG} /root/kept.yaml
cat >> {_CONFIG} <<'END'
runtimes:
- handlers: [{_HANDLER}]
  channels: [netns]
- handlers: ["kata*"]
  channels: [agent, stock]
END
systemctl restart kata-bridge
"""
_RESTORE = f"mv /root/kept.yaml {_CONFIG}; systemctl restart kata-bridge"
_STARTED_S = 60.0


def check(site: Site, tenant: RingTenant) -> Iterator[str]:
    """A line for each thing that held. Raises `RingError` or `AssertionError`."""
    site.booted.run(_CHANGE)
    try:
        lifecycle.wait_until_ready(site)
        site.api.create("/apis/node.k8s.io/v1/runtimeclasses", workload.runtime_class(_HANDLER))
        script = workload.asking(workload.service_address(site, tenant))
        workload.start_pod(
            site, tenant, "netns-client", {"containers": [container("main", ["sh", "-c", script])]}, _HANDLER
        )
        lines = wait_for(
            "the client's lines", lambda: workload.client_lines(tenant, "netns-client"), timeout_s=_STARTED_S
        )
        assert lines[0] == workload.PAGE, lines
        guests = site.booted.run("vcnode guests -o wide")
        (row,) = (line for line in guests.splitlines() if line.startswith("shop/netns-client"))
        assert " netns " in row, row
        yield f"kata-bridge: wrote rules into a guest's namespace, as its channel netns: {lines[0]}"
        site.syncer.delete_pod(tenant, workload.NAMESPACE, "netns-client")
    finally:
        site.booted.run(_RESTORE)
    lifecycle.wait_until_ready(site)
