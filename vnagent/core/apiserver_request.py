# SPDX-License-Identifier: Apache-2.0
"""The requests of the super API server, in the place of the kubelet's.

docs/spec/kubelet-api.md#through-the-super-api-server has the table.

Logs and streams are subresources of the pod: their rights do not include `nodes/proxy`, which allows
commands in every pod of a node. Only pages come by the node's proxy.
"""

from tenancy.ownership import Owned
from vnagent.core.query import Options, render_query
from vnagent.core.requests import ContainerLogs, Endpoint, Stream
from vnagent.core.upstream_request import AGENT, upgrade_head

# v1 PodExecOptions, PodAttachOptions and PodPortForwardOptions, by the kubelet's names. `command` and the
# parameters of a log (v1 PodLogOptions) have the same name in both.
_PARAMETERS = {
    "input": "stdin",
    "output": "stdout",
    "error": "stderr",
    "port": "ports",
}
_SUBRESOURCES = {
    Endpoint.EXEC: "exec",
    Endpoint.ATTACH: "attach",
    Endpoint.PORT_FORWARD: "portforward",
}


class ApiserverRequests:
    """The requests of the API server at `authority`, below `path`, for the pods of `node_name`.

    `token` is the credential of vn-agent, without which its client certificate is the only one. A caller's
    Authorization is never an argument.
    """

    def __init__(self, authority: str, path: str, node_name: str, token: str | None) -> None:
        self.hop = "apiserver"
        self.authority = authority
        self._path = path
        self._node = f"{path}/api/v1/nodes/{node_name}/proxy"
        credential = "" if token is None else f"Authorization: Bearer {token}\r\n"
        self._fields = f"Host: {authority}\r\n{AGENT}{credential}"

    def logs(self, request: ContainerLogs, pod: Owned) -> bytes:
        """`GET pods/log`. `insecureSkipTLSVerifyBackend` is never sent: the API server verifies its
        kubelets."""
        query = render_query((("container", request.container), *request.options))
        return f"GET {self._pod(pod)}/log{query} HTTP/1.1\r\n{self._fields}\r\n".encode("ascii")

    def stream(self, request: Stream, pod: Owned) -> bytes:
        """`pods/exec`, `pods/attach` or `pods/portforward`.

        They have no place for a UID. vn-agent has compared it, and both pods of one name are the tenant's.
        """
        options: Options = tuple([(_PARAMETERS.get(key, key), value) for key, value in request.options])
        if request.container is not None:
            options = (("container", request.container), *options)
        method, lines = upgrade_head(request)
        head = "\r\n".join(lines)
        target = f"{self._pod(pod)}/{_SUBRESOURCES[request.endpoint]}{render_query(options)}"
        return f"{method} {target} HTTP/1.1\r\n{self._fields}{head}\r\n\r\n".encode("ascii")

    def page(self, path: str) -> bytes:
        """A GET for the page of the node's kubelet by the node's proxy, uncompressed."""
        return (f"GET {self._node}{path} HTTP/1.1\r\n{self._fields}Accept-Encoding: identity\r\n\r\n").encode(
            "ascii"
        )

    def _pod(self, pod: Owned) -> str:
        return f"{self._path}/api/v1/namespaces/{pod.super_namespace}/pods/{pod.super_name}"
