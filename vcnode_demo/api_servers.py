# SPDX-License-Identifier: Apache-2.0
"""The kubelet of the demo's control planes: for each Deployment `apiserver` it runs a fake API server.

That listens at the cluster IP of its Service, with the certificate of the Secret and the authority of the
ConfigMap that the pod would mount: what vc-operator issued is what its clients verify. Its objects live as
long as the tenant's store, so a tenant that was asleep has them again.
"""

import base64

from daemonkit.kube.resources import CONFIG_MAPS, SECRETS, SERVICES, Resource
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.storage import Object
from devkit.kube.workloads import STATEFUL_SETS
from devkit.pki import Leaf
from tenant_operator.model import names

_TENANT_RANGE = "10.32.0.0/16"


class ApiServers:
    """`scale` is a kubelet of `devkit.kube.workloads`."""

    def __init__(self, super_cluster: Cluster) -> None:
        self._super = super_cluster
        self._servers: dict[str, FakeApiserver] = {}
        self._running: set[str] = set()

    async def scale(self, workload: Object, replicas: int) -> int:
        """Start or end what can be asked of a control plane. Returns how many replicas are ready."""
        namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
        if name == names.API_SERVER:
            return await (self._start(namespace) if replicas else self._end(namespace))
        if name == names.ETCD and self._find(STATEFUL_SETS, namespace, names.ETCD) is None:
            self._servers.pop(namespace, None)
        return replicas

    async def close(self) -> None:
        """End all of them."""
        for namespace in tuple(self._running):
            await self._end(namespace)

    async def _start(self, namespace: str) -> int:
        if namespace in self._running:
            return 1
        secret = self._find(SECRETS, namespace, names.API_SERVER_SERVING)
        authorities = self._find(CONFIG_MAPS, namespace, names.AUTHORITIES)
        service = self._find(SERVICES, namespace, names.API_SERVER_SERVICE)
        if secret is None or authorities is None or service is None:
            return 0  # as a pod whose volumes do not exist yet
        bundle: str = authorities["data"][names.CLUSTER_BUNDLE]
        certificate, key = (base64.b64decode(secret["data"][each]) for each in ("tls.crt", "tls.key"))
        server = self._servers.get(namespace)
        if server is None:
            server = FakeApiserver(
                client_ca_pem=bundle.encode(),
                cluster=ClusterSettings(service_cidr=_TENANT_RANGE, root_ca_pem=bundle),
                address=service["spec"]["clusterIP"],
            )
        server.serving = Leaf.from_pem(certificate, key)
        server.port = names.API_SERVER_PORT
        await server.start()
        self._servers[namespace] = server
        self._running.add(namespace)
        return 1

    async def _end(self, namespace: str) -> int:
        if namespace in self._running:
            self._running.discard(namespace)
            await self._servers[namespace].stop()
        return 0

    def _find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._super.storage.peek(resource, namespace, name)
