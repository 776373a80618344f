# SPDX-License-Identifier: Apache-2.0
"""A fake of the part of a kube-apiserver that asks a kubelet: logs and streams of pods, pages of the node.

It is `FakeKubelet` behind the paths, parameters and errors of an API server of 1.34: pods/{log,exec,attach,
portforward} and nodes/proxy. A caller needs a known token, or a client certificate, and the right.
tests/functional/devkit/kubelet/test_pod_proxy.py has its facts; tests/k8s/test_super_apiserver.py asks a real
one for the same.
"""

import dataclasses
import json
import ssl
from collections.abc import Callable, Iterable
from urllib.parse import urlencode

from devkit.kubelet.pods import FakePod
from devkit.kubelet.replies import Exchange, FakeReply
from devkit.kubelet.server import FakeKubelet

_PARAMETERS = {"stdin": "input", "stdout": "output", "stderr": "error", "ports": "port"}
_ENDPOINTS = {"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}
_VERBS = {"GET": "get", "POST": "create"}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    422: "Invalid",
    500: "InternalError",
}


def pod_proxy_context(cert_file: str, key_file: str, client_ca_pem: str) -> ssl.SSLContext:
    """TLS as an API server has it: client certificates are requested, HTTP/2 is preferred."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    context.load_verify_locations(cadata=client_ca_pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class FakePodProxy(FakeKubelet):
    """The API server in front of the kubelet that runs `pods`. `exchanges` are in the API server's form.

    `denied` has the rights that no caller has, as `get pods/log`.
    """

    def __init__(
        self, pods: Iterable[FakePod] = (), *, tls: ssl.SSLContext, node_name: str = "node-1"
    ) -> None:
        super().__init__(pods, tls=tls, node_name=node_name)
        self.tokens: set[str] = set()
        self.denied: set[str] = set()
        self.kubelet_script: Callable[[Exchange], FakeReply | None] | None = None
        """Answers in the place of the kubelet, in the kubelet's form."""

    def answer(self, exchange: Exchange) -> FakeReply:
        """The answer of the API server, or of its kubelet."""
        scheme, _, token = "".join(exchange.values("Authorization")).partition(" ")
        if not (exchange.peer or (scheme == "Bearer" and token in self.tokens)):
            return _status(401, "Unauthorized")
        verb = _VERBS.get(exchange.method, "")
        match exchange.path.split("/")[1:]:
            case ["api", "v1", "namespaces", namespace, "pods", name, part] if part in _ENDPOINTS:
                if f"{verb} pods/{part}" in self.denied:
                    return _forbidden(exchange, verb, f"pods/{part}", namespace)
                return self._of_pod(exchange, namespace, name, part)
            case ["api", "v1", "nodes", self.node_name, "proxy", *path]:
                if f"{verb} nodes/proxy" in self.denied:
                    return _forbidden(exchange, verb, "nodes/proxy", "")
                return self._kubelet(exchange, "/" + "/".join(path), exchange.query)
        return _status(404, "the server could not find the requested resource")

    def _of_pod(self, exchange: Exchange, namespace: str, name: str, part: str) -> FakeReply:
        pod = next((p for p in self.pods if (p.namespace, p.name) == (namespace, name)), None)
        if pod is None:
            return _status(404, f'pods "{name}" not found')
        options = [(key, value) for key, value in exchange.query if key != "container"]
        asked = dict(exchange.query).get("container", "")
        container = asked or pod.every_container[0]
        if container not in pod.every_container:
            return _status(400, f"container {container} is not valid for pod {name}")
        if part != "log":
            options = [(_PARAMETERS.get(key, key), value) for key, value in options]
        path = f"/{_ENDPOINTS[part]}/{namespace}/{name}"
        if part != "portforward":
            path += f"/{container}"
        reply = self._kubelet(exchange, path, options)
        # An upgrade's answer passes as it is.
        return _translated(reply) if part == "log" and reply.status >= 400 else reply

    def _kubelet(self, exchange: Exchange, path: str, options: list[tuple[str, str]]) -> FakeReply:
        query = f"?{urlencode(options)}" if options else ""
        asked = dataclasses.replace(exchange, target=f"{path}{query}", peer="kube-apiserver")
        scripted = None if self.kubelet_script is None else self.kubelet_script(asked)
        return scripted or super().answer(asked)


def _translated(reply: FakeReply) -> FakeReply:
    """A kubelet's refusal of a log as client-go's GenericHttpResponseChecker has it."""
    text = reply.body.decode()
    if reply.status == 400:
        return _status(400, text)
    if reply.status == 500:
        return _status(500, f"Internal error occurred: {text}")
    return _status(reply.status, "the server could not find the requested resource")


def _forbidden(exchange: Exchange, verb: str, resource: str, namespace: str) -> FakeReply:
    place = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    user = exchange.peer or "system:serviceaccount:vcnode:vn-agent"
    return _status(403, f'User "{user}" cannot {verb} resource "{resource}" in API group ""{place}')


def _status(code: int, message: str) -> FakeReply:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }
    return FakeReply(code, (("Content-Type", "application/json"),), json.dumps(body).encode())
