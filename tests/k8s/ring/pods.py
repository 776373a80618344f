# SPDX-License-Identifier: Apache-2.0
"""The pods that the ring's tests work on."""

from __future__ import annotations

from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.tenants import HandSyncer, RingTenant

HTTP_PORT = 8080
LINES = 20

# Prints LINES numbered lines, then serves its own name by HTTP. A test adds lines by writing to the
# standard output of process 1.
_TALKER = f"""
i=1; while [ $i -le {LINES} ]; do echo "$0 line $i"; i=$((i+1)); done
mkdir -p /srv; echo "page of $0" > /srv/index.html
exec httpd -f -p {HTTP_PORT} -h /srv
"""

# Ends on its first run and stays on its second: there is a previous log, and it stays the same one.
# The only one that writes to both outputs: the kubelet does not keep their order in the log.
_FALLER = """
if [ -e /shared/fell ]; then echo 'second run'; echo 'an error' >&2; exec sleep 100000; fi
echo 'first run'; : > /shared/fell; exit 3
"""

# Echoes its input, for attach.
_ANSWERER = 'echo ready; while read -r line; do echo "received $line"; done; exec sleep 100000'

SIDECAR = "mesh-proxy"


def container(name: str, command: list[str], **more: object) -> JsonObject:
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": command,
        **more,
    }


def web(label: str) -> JsonObject:
    """A pod with an init container and two others; all its output has `label`."""
    return {
        "initContainers": [container("setup", ["sh", "-c", f"echo {label} set up"])],
        "containers": [
            container(
                "main",
                ["sh", "-c", _TALKER, label],
                ports=[{"containerPort": HTTP_PORT}],
                env=[{"name": "SECRET_OF", "value": label}],
                readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
            ),
            container("side", ["sh", "-c", f"echo {label} beside; exec sleep 100000"]),
        ],
    }


def faller() -> JsonObject:
    """A pod whose container has one earlier run."""
    return {
        "containers": [
            container(
                "main",
                ["sh", "-c", _FALLER],
                volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
            )
        ],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    }


def answerer() -> JsonObject:
    """A pod whose container reads its standard input."""
    return {"containers": [container("main", ["sh", "-c", _ANSWERER], stdin=True)]}


def never_starts() -> JsonObject:
    """A pod whose image is not there: its container waits for ever."""
    missing = container("main", ["true"])
    missing["image"] = "ring.test/missing:1"
    return {"containers": [missing]}


def has_ended() -> JsonObject:
    """A pod whose container has run to its end."""
    return {
        "restartPolicy": "Never",
        "containers": [container("main", ["sh", "-c", "echo all done"])],
    }


def create_all(syncer: HandSyncer, acme: RingTenant, acme_x: RingTenant) -> None:
    """Create every pod of the ring and wait until each is as its test wants it."""
    sidecar = container(SIDECAR, ["sh", "-c", "echo sidecar; exec sleep 100000"])
    syncer.create_pod(acme, "default", "web", web("acme"), injected=(sidecar,))
    syncer.create_pod(acme_x, "default", "web", web("acme-x"))
    syncer.create_pod(acme, "default", "only-acme", web("only"))
    syncer.create_pod(acme, "default", "faller", faller())
    syncer.create_pod(acme, "default", "answerer", answerer())
    syncer.create_pod(acme, "default", "waiting", never_starts())
    syncer.create_pod(acme, "default", "ended", has_ended())
    create_host_pod(syncer)
    for tenant, name in ((acme, "web"), (acme_x, "web"), (acme, "only-acme"), (acme, "answerer")):
        syncer.wait_running(tenant, "default", name)
    syncer.wait_status(acme, "default", "faller", _has_fallen)
    syncer.wait_status(acme, "default", "ended", lambda p: p["status"]["phase"] == "Succeeded")
    syncer.wait_status(acme, "default", "waiting", _is_waiting)


def create_host_pod(syncer: HandSyncer) -> None:
    """A pod of the super cluster itself."""
    syncer.super_api.create(
        "/api/v1/namespaces/kube-system/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "node-agent"},
            "spec": {
                "nodeName": syncer.node,
                "terminationGracePeriodSeconds": 0,
                "containers": [container("main", ["sh", "-c", "echo host; exec sleep 100000"])],
            },
        },
    )


def _has_fallen(pod: JsonObject) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return any(s["restartCount"] == 1 and "running" in s["state"] for s in statuses)


def _is_waiting(pod: JsonObject) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return any(s["state"].get("waiting", {}).get("reason", "").startswith("ErrImage") for s in statuses)
