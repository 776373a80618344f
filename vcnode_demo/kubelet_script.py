# SPDX-License-Identifier: Apache-2.0
"""The programs of the fake kubelet's pods: a log, a shell, a web server."""

from collections.abc import Sequence
from functools import partial

from devkit.kubelet.replies import Exchange, FakeReply, Tunnel
from devkit.kubelet.server import FakePod

NODE_NAME = "node-1"


def script(exchange: Exchange, pods: Sequence[FakePod]) -> FakeReply | None:
    """The answer to one request of vn-agent's; None leaves it to the fake kubelet's default."""
    kind, namespace, name, *rest = [*exchange.path.split("/")[1:], "", "", ""]
    pod = _find(pods, namespace, name)
    if pod is None:
        return None
    if kind == "containerLogs":
        return _log(exchange, pod, rest[0])
    if kind == "exec" and exchange.is_upgrade:
        return FakeReply(101, tunnel=Tunnel.SINK, answer=partial(_shell, pod))
    if kind == "portForward" and exchange.is_upgrade:
        return FakeReply(101, tunnel=Tunnel.SINK, answer=partial(_web, pod))
    return None


def _find(pods: Sequence[FakePod], namespace: str, name: str) -> FakePod | None:
    return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)


def _log(exchange: Exchange, pod: FakePod, container: str) -> FakeReply | None:
    if container not in pod.every_container:
        return None
    lines = [f"{owner(pod)}'s {pod.name} is up", f"{owner(pod)}'s {pod.name} took an order ({pod.marker})"]
    options = dict(exchange.query)
    if "tailLines" in options:
        count = int(options["tailLines"])
        lines = lines[-count:] if count else []
    follows = (pod.namespace, pod.name, container) if options.get("follow") == "true" else None
    body = "".join(f"{line}\n" for line in lines).encode()
    return FakeReply(200, (("Content-Type", "text/plain"),), body, is_chunked=True, follows=follows)


def _shell(pod: FakePod, sent: bytes) -> bytes:
    """A very small shell: it knows two commands."""
    known = {"hostname": pod.name, "cat /etc/owner": f"{owner(pod)} {pod.marker}"}
    words = [line.strip() for line in sent.decode("utf-8", "replace").splitlines()]
    return "".join(f"{known.get(word, f'sh: {word}: not found')}\n" for word in words if word).encode()


def _web(pod: FakePod, sent: bytes) -> bytes:
    """A very small web server: one request in one read."""
    if not sent.endswith(b"\r\n\r\n"):
        return b""
    body = f"welcome to {owner(pod)}'s {pod.name} ({pod.marker})\n".encode()
    return b"HTTP/1.1 200 OK\r\nServer: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        pod.name.encode(),
        len(body),
        body,
    )


def owner(pod: FakePod) -> str:
    """The pod's owner, as the demo prints it."""
    return pod.labels.get("owner", "the node")
