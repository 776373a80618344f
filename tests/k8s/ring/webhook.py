# SPDX-License-Identifier: Apache-2.0
"""The DNS webhook as it is shipped: its objects applied, its own token, called through its Service.

It runs as a process beside the apiserver. Nothing translates a Service's address there, so the
address of its Service is put on that namespace's loopback, and it listens at the Service's port.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from devkit.files import replace_file
from dns_webhook.registration import NAME, PATH
from tests.k8s.ring.api import JsonObject, KubernetesApi, TlsEndpoint
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.processes import run

NAMESPACE, SERVICE = "vcnode-system", "dnsconfig-webhook"
# How often it checks dates and its registration here: an API server has a new authority by then.
CHECK_INTERVAL_S = 3.0
_SHIPPED = Path(__file__).resolve().parents[3] / "packaging" / "webhook"
_PORT = 443
_LAUNCHER = """\
#!{python}
import datetime, pathlib, sys
from dns_webhook.__main__ import main
from dns_webhook.rotation import utc_now

def now():
    return utc_now() - datetime.timedelta(seconds=float(pathlib.Path("{behind}").read_text()))

sys.exit(main(check_interval_s={check_interval_s}, now=now))
"""


def clock(ring: Ring) -> Path:
    """The file with the seconds that the webhook's clock is behind."""
    return ring.directory / "webhook-clock"


def set_clock(ring: Ring, behind: dt.timedelta) -> None:
    """Let the webhook's clock be so much behind from now on."""
    replace_file(clock(ring), str(behind.total_seconds()).encode())


def shipped(file: str, kind: str) -> JsonObject:
    """The one object of a kind in a shipped file."""
    (found,) = [each for each in yaml.safe_load_all((_SHIPPED / file).read_text()) if each["kind"] == kind]
    value: JsonObject = found
    return value


@contextmanager
def installed(ring: Ring) -> Iterator[str]:
    """Apply what is shipped, by kubectl and with strict validation; gives the address of the Service."""
    for name in (
        "../namespace/namespace.yaml",
        "policy.yaml",
        "rbac.yaml",
        "deployment.yaml",
        "registration.yaml",
    ):
        apply(ring, name)
    service = ring.super_cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}")
    address = service["spec"]["clusterIP"]
    enter = ring.control.enter
    run([*enter, "ip", "address", "add", f"{address}/32", "dev", "lo"])
    try:
        yield address
    finally:
        ring.super_cluster.api.delete(f"{PATH}/{NAME}")
        run([*enter, "ip", "address", "del", f"{address}/32", "dev", "lo"])


def apply(ring: Ring, file: str) -> None:
    """`kubectl apply` of one shipped file."""
    kubectl = replace(ring.super_kubectl, namespace=NAMESPACE)
    kubectl("apply", "--validate=strict", "-f", str(_SHIPPED / file)).check()


def token(ring: Ring) -> str:
    """A token of its service account, as the kubelet would put into its pod."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    text: str = ring.super_cluster.api.create(path, request)["status"]["token"]
    return text


def daemon(ring: Ring, address: str) -> NodeDaemon:
    """The webhook with its shipped configuration; only files and addresses are of the ring."""
    tree = ring.directory / "webhook-tree"
    (tree / "bin").mkdir(parents=True, exist_ok=True)
    launcher = tree / "bin" / SERVICE
    launcher.write_text(
        _LAUNCHER.format(python=sys.executable, check_interval_s=CHECK_INTERVAL_S, behind=clock(ring))
    )
    launcher.chmod(0o755)
    set_clock(ring, dt.timedelta(0))
    # On the node nsenter forks, as it enters a process namespace; NodeDaemon signals the only child.
    wrapper = [*ring.control.enter, "unshare", "--fork", "--kill-child=KILL"]
    made = NodeDaemon(SERVICE, "", ring, sys.executable, wrapper, tree=tree)
    (made.directory / "resolv.conf").write_text("search node.example Corp.Example -no.example\n")
    (made.directory / "token").write_text(token(ring))
    (made.directory / "ca.crt").write_bytes(ring.super_cluster.authority.cert_pem)
    files = shipped("deployment.yaml", "ConfigMap")["data"]
    kubeconfig = yaml.safe_load(files["kubeconfig"])
    endpoint = ring.super_cluster.api.endpoint
    kubeconfig["clusters"][0]["cluster"] |= {
        "server": f"https://{endpoint.address}:{endpoint.port}",
        "certificate-authority": "ca.crt",
    }
    kubeconfig["users"][0]["user"] |= {"tokenFile": "token"}
    (made.directory / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    made.configure(
        "dnsconfig-webhook.yaml",
        {
            "listen.address": address,
            "listen.port": _PORT,
            "stateDirectory": str(made.directory / "state"),
            "resolvConf": str(made.directory / "resolv.conf"),
        },
    )
    return made


def port(ring: Ring, address: str, authority_pem: bytes) -> TlsEndpoint:
    """Its port, for direct clients; the certificate names the Service alone."""
    return TlsEndpoint(ring.control, address, _PORT, authority_pem, None, f"{SERVICE}.{NAMESPACE}.svc")


def registered(ring: Ring) -> JsonObject:
    """Its one webhook, as it is registered now."""
    (found,) = ring.super_cluster.api.get(f"{PATH}/{NAME}")["webhooks"]
    value: JsonObject = found
    return value


def as_itself(ring: Ring, text: str) -> KubernetesApi:
    """The super cluster with the webhook's token and nothing else."""
    endpoint = ring.super_cluster.api.endpoint
    bare = TlsEndpoint(endpoint.namespace, endpoint.address, endpoint.port, endpoint.authority_pem, None)
    return KubernetesApi(bare, {"Authorization": f"Bearer {text}"})
