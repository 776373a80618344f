# SPDX-License-Identifier: Apache-2.0
"""What the environments with pods in VPCs have in common: kata-bridge, a daemon that uses it, their files."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from vcnode_demo import kubelet_script
from vcnode_demo.daemon import Daemon
from vcnode_demo.guest import BOUND
from vcnode_demo.super_cluster import FakeSuperCluster
from vcnode_demo.vpc import Vpcs


class VpcEnvironment:
    """`close` ends what was started; its objects in the super cluster stay."""

    def __init__(
        self,
        directory: Path,
        super_cluster: FakeSuperCluster,
        *,
        sandboxes: Mapping[str, object],
        run_by: tuple[str, ...],
    ) -> None:
        """`sandboxes` are keys of kata-bridge's configuration, `run_by` is as a `Daemon` has it. The caller
        removes `directory`."""
        self.directory = directory
        self.super_cluster = super_cluster
        self.vpcs = Vpcs()
        self._run_by = run_by
        self._ending = contextlib.ExitStack()
        self.bridge_socket = directory / "bridge.sock"
        config = {
            "stateDirectory": str(directory / "bridge"),
            "lockFile": str(directory / "kata-bridge.lock"),
            "listen": {"socket": str(self.bridge_socket)},
            "drain": {"seconds": 1},
            **sandboxes,
        }
        self.bridge = self._daemon("kata-bridge", "kata_bridge", "KataBridgeConfiguration", config)

    def _bridge_user(self, name: str, module: str, kind: str, config: Mapping[str, object]) -> Daemon:
        """A daemon that reads the super cluster and uses kata-bridge, with these keys beside."""
        kubeconfig = self.directory / f"{name}.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(self.super_cluster.kubeconfig(name))
        common = {
            "nodeName": kubelet_script.NODE_NAME,
            "superCluster": {"kubeconfigFile": str(kubeconfig)},
            "bridge": {"socket": str(self.bridge_socket)},
            "stateDirectory": str(self.directory / name),
        }
        return self._daemon(name, module, kind, {**common, **config})

    def _daemon(self, name: str, module: str, kind: str, config: dict[str, object]) -> Daemon:
        return Daemon(name, module, self.directory, kind, config, start_by=BOUND, run_by=self._run_by)

    def close(self) -> None:
        """End everything that was started, last first. May be called twice."""
        self._ending.close()
