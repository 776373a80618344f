# SPDX-License-Identifier: Apache-2.0
"""The DNS webhook as it is shipped to a cluster: its image, and its Deployment as pods.

The image is what packaging/webhook/Containerfile describes, made by hand: an empty Debian with Python,
our tree over it, and the last stage's user and commands. No registry is used. The super cluster gets
what its Deployment needs and the ring has not otherwise: a second apiserver on the same objects, which
gives pods their account's token and calls a webhook at its pods, and the controllers of Deployments.
Pods are bound to the node by hand.
"""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.k8s.ring import debian, images
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.controlplane import Apiserver, start_apiserver
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import RingError, RingProcess, run
from tests.k8s.ring.shipped import ROOT
from tests.k8s.ring.webhook import NAMESPACE, SERVICE

IMAGE = "ring.test/vcnode-dnsconfig-webhook:1"
# Beside the ring's own addresses.
_ADDRESS = "10.70.0.4"
_PACKAGING = ROOT / "packaging" / "webhook"
_CONTROLLERS = (
    *("deployment-controller", "replicaset-controller", "endpointslice-controller"),
    *("serviceaccount-controller", "root-ca-certificate-publisher-controller"),
)
_POLL_S = 0.2


def write_image(archive: Path, tree: Path) -> None:
    """The image with a tree as `packaging/tree.py` makes it."""
    stage = (_PACKAGING / "Containerfile").read_text().rpartition("\nFROM ")[2]
    lines = dict(line.split(" ", 1) for line in stage.splitlines()[1:] if line[:1].isupper())
    target = lines["COPY"].split()[-1]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(tree, arcname=target.lstrip("/"))
    settings = {
        "User": lines["USER"],
        "Entrypoint": json.loads(lines["ENTRYPOINT"]),
        "Cmd": json.loads(lines["CMD"]),
        "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
    }
    images.write_archive(archive, IMAGE, [debian.archive().read_bytes(), buffer.getvalue()], settings)


def manifest(name: str, server: str) -> str:
    """A shipped file with what its first lines call the site's own: the image and the API server."""
    text = (_PACKAGING / name).read_text()
    return text.replace(f"image: vcnode-{SERVICE}\n", f"image: {IMAGE}\n").replace(
        "https://10.96.0.1", server
    )


@contextmanager
def pod_apiserver(ring: Ring) -> Iterator[Apiserver]:
    """The second apiserver of the super cluster, and controllers that work through it."""
    with ExitStack() as stack:
        enter = ring.control.enter
        run([*enter, "ip", "address", "add", f"{_ADDRESS}/32", "dev", "lo"])
        stack.callback(run, [*enter, "ip", "address", "del", f"{_ADDRESS}/32", "dev", "lo"])
        made = start_apiserver(
            "super-pods",
            ring.control,
            _ADDRESS,
            ring.binaries,
            ring.directory,
            authority=ring.super_cluster.authority,
            accounts_of=ring.super_cluster.kubeconfig.parent,
        )
        stack.callback(made.daemon.stop)
        made.wait_ready()
        authority = made.kubeconfig.with_name("ca.crt")
        argv = [
            *enter,
            ring.binaries["kube-controller-manager"],
            f"--kubeconfig={made.kubeconfig}",
            f"--controllers={','.join(_CONTROLLERS)}",
            f"--root-ca-file={authority}",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        stack.callback(RingProcess("controllers", argv, ring.directory / "controllers-super.log").stop)
        yield made


@contextmanager
def deployed(ring: Ring, apiserver: Apiserver, tree: Path) -> Iterator[Kubectl]:
    """Everything of packaging/webhook applied, in the order of its README; pods get bound meanwhile."""
    archive = ring.directory / "webhook-image.tar"
    write_image(archive, tree)
    ring.node.import_image(archive)
    kubectl = Kubectl(ring.control, ring.binaries["kubectl"], apiserver.kubeconfig, NAMESPACE)
    endpoint = ring.super_cluster.api.endpoint
    files = []
    shipped = ("../namespace/namespace.yaml", "policy.yaml", "rbac.yaml", "deployment.yaml", "registration.yaml")
    for name in shipped:
        file = ring.directory / f"webhook-{Path(name).name}"
        file.write_text(manifest(name, f"https://{endpoint.address}:{endpoint.port}"))
        files.append(str(file))
    ended = threading.Event()
    scheduler = threading.Thread(target=_bind_pods, args=(apiserver, ring.node.name, ended), name="scheduler")
    # Another module applies these files too, where nothing makes pods of a Deployment.
    _remove(kubectl)
    try:
        for each in files:
            kubectl("apply", "--validate=strict", "-f", each).check()
        scheduler.start()
        yield kubectl
    finally:
        # The registration first: with it the apiservers call a webhook that is being removed.
        kubectl("delete", "--ignore-not-found", "-f", files[-1])
        _remove(kubectl)
        ended.set()
        if scheduler.ident is not None:
            scheduler.join()


def _remove(kubectl: Kubectl) -> None:
    """Take the Deployment away, and by hand what its owners' collector would: none runs here."""
    for kind in ("deployments", "replicasets", "pods"):
        kubectl("delete", kind, "--all", "--cascade=background", "--grace-period=1").check()


def _bind_pods(apiserver: Apiserver, node: str, ended: threading.Event) -> None:
    """A scheduler's work, for one node."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    while not ended.wait(_POLL_S):
        try:
            for pod in apiserver.api.get(path)["items"]:
                if "nodeName" not in pod["spec"]:
                    _bind(apiserver, pod["metadata"]["name"], node)
        except RingError:
            continue  # retried in the next round


def _bind(apiserver: Apiserver, pod: str, node: str) -> None:
    value: JsonObject = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    apiserver.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding", value, may_exist=True)
