# SPDX-License-Identifier: Apache-2.0
"""The environment of vc-operator's scenario: the real vc-operator, a fake kubelet of its control planes, and
a person's `kubectl vc`.

It needs vn-agent and vc-syncer, by which a tenant becomes Ready.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

from daemonkit.kube.resources import NAMESPACES, Resource
from devkit.kube.cluster import Cluster
from devkit.kube.storage import Object
from devkit.kube.workloads import Scale
from tenant_operator.model.objects import CLUSTER_VERSIONS
from vcnode_demo.api_servers import ApiServers
from vcnode_demo.daemon import Daemon
from vcnode_demo.super_cluster import KUBECTL, OPERATOR, FakeSuperCluster

VERSION = "v1.34"
# Nothing of these is started: the demo has no container runtime.
_REGISTRY = "registry.example"
_RELEASE: Object = {
    "kubernetesVersion": "1.34.4",
    "etcdVersion": "3.7.3",
    "images": {
        "apiServer": f"{_REGISTRY}/kube-apiserver:v1.34.4",
        "controllerManager": f"{_REGISTRY}/kube-controller-manager:v1.34.4",
        "etcd": f"{_REGISTRY}/etcd:3.7.3",
        "signer": f"{_REGISTRY}/vc-operator:1",
    },
    "datastore": {"type": "etcd", "size": "1Gi"},
}
_PROGRAMS = {"kubectl": "vcnode_demo.kubectl_program", "kubectl-vc": "kubectl_vc"}
_CALL_S = 60.0


class OperatorEnvironment:
    """`open` and `close`. The caller removes `directory`."""

    def __init__(
        self, directory: Path, super_cluster: FakeSuperCluster, agent_port: int, serving_ca_file: Path
    ) -> None:
        """`agent_port` is vn-agent's, `serving_ca_file` has the authority of its certificate."""
        self.directory = directory
        self.super_cluster = super_cluster
        self._ending = contextlib.ExitStack()
        self._kubeconfig = directory / "person.kubeconfig"
        self._servers: ApiServers | None = None
        kubeconfig = directory / "super-cluster.kubeconfig"
        for file, name in ((kubeconfig, OPERATOR), (self._kubeconfig, KUBECTL)):
            file.touch(0o600)
            file.write_text(super_cluster.kubeconfig(name))
        self.operator = Daemon(
            OPERATOR,
            "tenant_operator",
            directory,
            "OperatorConfiguration",
            {
                "superCluster": {
                    "kubeconfigFile": str(kubeconfig),
                    "serviceCidrs": [super_cluster.service_cidr],
                    "podCidrs": ["10.244.0.0/16"],
                    "nodeCidrs": ["127.0.0.1/32"],
                },
                "nodes": {"port": agent_port, "servingCaFile": str(serving_ca_file)},
            },
        )

    def open(self) -> None:
        """Start everything. Raises ToolError."""
        self.super_cluster.create(CLUSTER_VERSIONS, "", VERSION, spec=_RELEASE)
        for name, module in _PROGRAMS.items():
            program = self.directory / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
            program.chmod(0o755)
        self._ending.callback(self._end_servers)
        self.super_cluster.start_workloads(self._scale)
        self._ending.callback(self.operator.stop)
        self.operator.start()

    def close(self) -> None:
        """End everything that was started, last first. May be called twice."""
        self._ending.close()

    def last_log_lines(self) -> list[str]:
        return self.operator.last_log_lines()

    def add_namespace(self, name: str) -> None:
        self.super_cluster.create(NAMESPACES, "", name)

    def kubectl(self, *words: str, text_in: str = "") -> tuple[int, str]:
        """A person's kubectl, with the plugin beside it; the exit code, and what it prints."""
        done = subprocess.run(  # noqa: S603 - our own program
            [str(self.directory / "kubectl"), *words],
            input=text_in,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_CALL_S,
            check=False,
            env={
                "PATH": f"{self.directory}:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.directory),
                "KUBECONFIG": str(self._kubeconfig),
                # Both of its streams in the order in which it writes.
                "PYTHONUNBUFFERED": "1",
            },
        )
        return done.returncode, done.stdout

    def owned(self, resource: Resource, uid: str) -> list[str]:
        """The names of what is there for the VirtualCluster of this UID."""
        return [
            each["metadata"]["name"]
            for each in self.super_cluster.objects(resource)
            if uid in str(each["metadata"].get("labels")) + str(each["metadata"].get("annotations"))
        ]

    def _scale(self, cluster: Cluster) -> Scale:
        self._servers = ApiServers(cluster)
        return self._servers.scale

    def _end_servers(self) -> None:
        if self._servers is not None:
            self.super_cluster.run(self._servers.close())
