# SPDX-License-Identifier: Apache-2.0
"""The environment of vc-syncer's scenario: tenants' control planes, and the real vc-syncer.

The API servers and the node are fakes. These tenants have nothing in the super cluster that was made by hand
but what VirtualCluster's provisioner makes: a VirtualCluster with its Secrets.
"""

import contextlib
from pathlib import Path

from tenancy import names
from vcnode_demo.control_plane import DemoControlPlane
from vcnode_demo.daemon import Daemon
from vcnode_demo.guest import BOUND
from vcnode_demo.super_cluster import SYNCER, FakeSuperCluster
from vcnode_demo.tenant import DemoTenant
from vcnode_demo.vpc import has_program

# A patrol judges the objects that a tenant lacks. The default is a minute, which is long in a demo.
_PATROL_S = 1


class SyncerEnvironment:
    """`open` and `close`; its objects in the super cluster stay."""

    def __init__(
        self,
        directory: Path,
        super_cluster: FakeSuperCluster,
        tenants: dict[str, DemoTenant],
        agent_port: int,
        *,
        run_by: tuple[str, ...] = (),
    ) -> None:
        """`agent_port` is vn-agent's, `run_by` as a `Daemon` has it. The caller removes `directory`."""
        self.directory = directory
        self.super_cluster = super_cluster
        self.tenants = tenants
        self.planes = {name: DemoControlPlane(tenant) for name, tenant in tenants.items()}
        self.ca_files = {
            name: tenant.authority.write(directory, f"{name}-ca") for name, tenant in tenants.items()
        }
        self._ending = contextlib.ExitStack()
        self.syncer = Daemon(
            SYNCER,
            "syncer",
            directory,
            "SyncerConfiguration",
            self._config(agent_port),
            start_by=BOUND if has_program(BOUND[0]) else (),
            run_by=run_by,
        )

    def open(self) -> None:
        """Start everything. Raises ToolError."""
        for name, plane in self.planes.items():
            self._ending.callback(plane.stop)
            plane.start()
            self.super_cluster.put_admin_kubeconfig(self.tenants[name].key, plane.kubeconfig())
        self._ending.callback(self.syncer.stop)
        self.syncer.start()

    def close(self) -> None:
        """End everything that was started, last first. May be called twice."""
        self._ending.close()

    def last_log_lines(self) -> list[str]:
        return self.syncer.last_log_lines()

    def super_namespace(self, tenant: str, namespace: str) -> str:
        """The name of a tenant's namespace in the super cluster."""
        name = names.super_namespace(self.tenants[tenant].key, namespace)
        if isinstance(name, names.Refused):
            raise AssertionError(name.reason)
        return name

    def _config(self, agent_port: int) -> dict[str, object]:
        kubeconfig = self.directory / "super-cluster.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(self.super_cluster.kubeconfig(SYNCER))
        return {
            "superCluster": {"kubeconfigFile": str(kubeconfig)},
            "tenants": {"virtualClusters": {}},
            "vnAgent": {"port": agent_port, "address": "node"},
            "networks": {"enabled": False},
            "patrol": {"intervalSeconds": _PATROL_S},
        }
