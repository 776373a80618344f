# SPDX-License-Identifier: Apache-2.0
"""The input of both proxies: certificates, ten tenants, and the 110 pods of a full node.

Most of the pods are of the first tenant, which makes all the load: a reader of a node's logs requests more
pods than a connection caches routes to (`vnagent.core.log_routes.MAX_ROUTES`).

One description becomes vn-agent's tenant files and PodList and the peer's one table, so that the
two look up the same names in collections of the same size.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.k8s.ring.certs import CertificateFiles, write_leaf

NODE = "node-1"
KEY_PREFIX = "bench-"
TENANTS = 10
NAMESPACE = "web"
# The kubelet's default maxPods.
NODE_PODS = 110
# The fake kubelet chooses its response by these names (upstream/main.go).
PODS = tuple(f"app-{n}" for n in range(80))
SIZED_PODS = tuple(f"sized-{n}" for n in range(5))
FLOOD_POD = "flood-0"
CONTAINER = "app"


@dataclass(frozen=True, slots=True)
class Fixture:
    """The paths of all files. `caller` is the first tenant's registered client, `neighbour` the second's."""

    directory: Path
    super_ca: Path
    kubelet: CertificateFiles
    kubelet_client: CertificateFiles
    serving_ca: Path
    serving: CertificateFiles
    caller: CertificateFiles
    caller_authority: Authority
    neighbour: CertificateFiles
    neighbour_pod: str
    tenants: Path
    pod_list: Path
    resource_page: Path
    all_tenant_cas: Path
    peer_table: Path


def super_namespace(tenant: str) -> str:
    return f"{tenant}-{NAMESPACE}"


def tenant_key(index: int) -> str:
    return f"{KEY_PREFIX}{hashlib.sha256(str(index).encode()).hexdigest()[:6]}-vc{index}"


def make(directory: Path) -> Fixture:
    """Write the whole fixture into `directory` and return the paths."""
    tenants = directory / "tenants"
    tenants.mkdir()
    super_ca, serving_ca = Authority.create("super-ca"), Authority.create("serving-ca")
    clients, callers, authorities = [], [], []
    for index in range(TENANTS):
        key, authority = tenant_key(index), Authority.create(f"tenant-{index}-ca")
        leaf = _leaf(authority, "kube-apiserver")
        authorities.append(authority)
        callers.append(_write(leaf, directory, f"tenant-{index}"))
        pem = authority.cert_pem.decode()
        clients.append({"tenant": key, "spkisha256": leaf.spki_sha256, "authority": pem})
        (tenants / f"{key}.yaml").write_text(_tenant_file(key, pem, leaf.spki_sha256))
    (directory / "tenant-cas.pem").write_text("".join(client["authority"] for client in clients))
    first = (*PODS, *SIZED_PODS, FLOOD_POD)
    pods = [_pod(0, number, name) for number, name in enumerate(first)]
    pods += [_pod(1 + n % (TENANTS - 1), n, f"other-{n}") for n in range(NODE_PODS - len(first))]
    table = {"clients": clients, "pods": pods}
    (directory / "peer-table.json").write_text(json.dumps(table))
    (directory / "pods.json").write_text(json.dumps(_pod_list(pods)))
    (directory / "resource.txt").write_text(_resource_page(pods))
    node = f"system:node:{NODE}"
    return Fixture(
        directory=directory,
        super_ca=super_ca.write(directory, "super-ca"),
        kubelet=_write(_leaf(super_ca, node), directory, "kubelet"),
        kubelet_client=_write(_leaf(super_ca, "vn-agent"), directory, "kubelet-client"),
        serving_ca=serving_ca.write(directory, "serving-ca"),
        serving=_write(_leaf(serving_ca, node), directory, "serving"),
        caller=callers[0],
        caller_authority=authorities[0],
        neighbour=callers[1],
        neighbour_pod=next(str(pod["name"]) for pod in pods if pod["tenant"] == tenant_key(1)),
        tenants=tenants,
        pod_list=directory / "pods.json",
        resource_page=directory / "resource.txt",
        all_tenant_cas=directory / "tenant-cas.pem",
        peer_table=directory / "peer-table.json",
    )


def _leaf(authority: Authority, name: str) -> Leaf:
    return authority.issue(name, sans_dns=[NODE], sans_ip=["127.0.0.1"])


def _write(leaf: Leaf, directory: Path, name: str) -> CertificateFiles:
    return write_leaf(leaf, directory / name)


def _pod(index: int, number: int, name: str) -> dict[str, object]:
    """A pod of the tenant of that number."""
    tenant = tenant_key(index)
    return {
        "tenant": tenant,
        "namespace": NAMESPACE,
        "name": name,
        "uid": f"{index:08x}-0000-4000-8000-{number:012x}",
        "superNamespace": super_namespace(tenant),
        "superName": name,
        "containers": [CONTAINER, "sidecar"],
    }


def _pod_list(pods: list[dict[str, object]]) -> dict[str, object]:
    items = [
        {
            "metadata": {
                "name": pod["superName"],
                "namespace": pod["superNamespace"],
                "uid": f"s-{pod['uid']}",
                "annotations": {
                    "tenancy.x-k8s.io/cluster": pod["tenant"],
                    "tenancy.x-k8s.io/namespace": pod["namespace"],
                    "tenancy.x-k8s.io/uid": pod["uid"],
                },
            },
            "spec": {
                "nodeName": NODE,
                "containers": [
                    {"name": name, "image": "registry.example/app:1"} for name in (CONTAINER, "sidecar")
                ],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        }
        for pod in pods
    ]
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}


def _resource_page(pods: list[dict[str, object]]) -> str:
    """The kubelet's `/metrics/resource`: two families by container, two by pod."""
    lines = []
    for name, unit in (("cpu_usage_seconds_total", "counter"), ("memory_working_set_bytes", "gauge")):
        lines.append(f"# TYPE container_{name} {unit}")
        for pod in pods:
            labels = f'namespace="{pod["superNamespace"]}",pod="{pod["superName"]}"'
            lines += [
                f'container_{name}{{container="{each}",{labels}}} 4.25 1764000000000'
                for each in (CONTAINER, "sidecar")
            ]
        lines.append(f"# TYPE pod_{name} {unit}")
        for pod in pods:
            labels = f'namespace="{pod["superNamespace"]}",pod="{pod["superName"]}"'
            lines.append(f"pod_{name}{{{labels}}} 8.5 1764000000000")
    return "\n".join(lines) + "\n"


def _tenant_file(key: str, authority_pem: str, spki: str) -> str:
    indented = "".join(f"    {line}\n" for line in authority_pem.splitlines())
    return (
        "apiVersion: vcnode.io/v1alpha1\n"
        "kind: Tenant\n"
        f"metadata:\n  name: {key}\n"
        f"spec:\n  certificateAuthority: |\n{indented}"
        f"  clients:\n    - spkiSHA256: {spki}\n      role: apiserver\n"
        "  clusterDomain: cluster.local\n"
    )
