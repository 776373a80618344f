# SPDX-License-Identifier: Apache-2.0
"""A kubectl for the demo: `python -m vcnode_demo.kubectl_program WORDS`.

It has what the plugin `vc` and the demo ask of kubectl. The real one asks for discovery first, which the fake
API server does not have. As the real one, it starts `kubectl-vc` for `vc`, and takes credentials from exec
plugins.
"""

import argparse
import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

_TENANCY = "/apis/tenancy.x-k8s.io/v1alpha1"
# The collections, behind the group and version; all but those of `_CLUSTER_SCOPED` are in namespaces.
_GROUPS = {
    "virtualclusters.tenancy.x-k8s.io": (_TENANCY, "virtualclusters"),
    "clusterversions.tenancy.x-k8s.io": (_TENANCY, "clusterversions"),
    **{name: ("/api/v1", name) for name in ("configmaps", "namespaces", "pods", "secrets", "services")},
    "deployments": ("/apis/apps/v1", "deployments"),
}
_CLUSTER_SCOPED = frozenset({"clusterversions.tenancy.x-k8s.io", "namespaces"})
_KINDS = {
    "VirtualCluster": "virtualclusters.tenancy.x-k8s.io",
    "ConfigMap": "configmaps",
    "Namespace": "namespaces",
}
_PATCHES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
_TIMEOUT_S = 60.0
USER_AGENT = "kubectl"


class KubectlError(Exception):
    """What is printed to stderr."""


class ApiConnection:
    """The API server of the kubeconfig's current context."""

    def __init__(self, config: Object) -> None:
        context = _named(config, "contexts", config.get("current-context", ""))["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"]
        if "exec" in user:
            user = _from_plugin(user["exec"])
        parts = urllib.parse.urlsplit(cluster["server"])
        trusted = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context_tls = ssl.create_default_context(cadata=trusted)
        if "client-certificate-data" in user:
            pair = [base64.b64decode(user[f"client-{each}-data"]) for each in ("certificate", "key")]
            _load(context_tls, b"".join(pair))
        self.namespace: str = context.get("namespace", "default")
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=context_tls
        )

    def ask(self, method: str, path: str, body: str = "", content_type: str = "application/json") -> str:
        """The answer's text. Raises KubectlError."""
        found = self.opened(method, path, body, content_type)
        return found.read().decode()

    def opened(
        self, method: str, path: str, body: str = "", content_type: str = "application/json"
    ) -> http.client.HTTPResponse:
        """The answer, whose body may go on. Raises KubectlError."""
        headers = {"User-Agent": USER_AGENT, "Content-Type": content_type}
        try:
            self._connection.request(method, path, body or None, headers)
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise KubectlError(f"Unable to connect to the server: {error}") from None
        if answer.status >= 400:
            raise KubectlError(_refusal(answer.read()))
        return answer


def _refusal(body: bytes) -> str:
    try:
        status: Object = json.loads(body)
    except ValueError:
        return f"Error from server: {body.decode(errors='replace')}"
    return f"Error from server ({status.get('reason', '')}): {status.get('message', '')}"


def _named(config: Object, kind: str, name: str) -> Object:
    found: Object | None = next((each for each in config.get(kind) or () if each["name"] == name), None)
    if found is None:
        raise KubectlError(f'error: context "{name}" does not exist')
    return found


def _from_plugin(plugin: Object) -> Object:
    """The credential that an exec plugin prints, as a kubeconfig's user has it."""
    environment = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    command = [plugin["command"], *plugin.get("args", ())]
    done = subprocess.run(  # noqa: S603 - the demo's own kubeconfig names it
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},  # noqa: TID251 - as kubectl hands its own on
    )
    if done.returncode:
        raise KubectlError(f"Unable to connect to the server: getting credentials: {done.stderr.strip()}")
    status = json.loads(done.stdout)["status"]
    return {
        f"client-{each.lower()}-data": base64.b64encode(status[f"client{each}Data"].encode()).decode()
        for each in ("Certificate", "Key")
    }


def _load(context: ssl.SSLContext, pair: bytes) -> None:
    """Without a file that stays."""
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pair)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def _path(resource: str, namespace: str, name: str = "") -> str:
    if resource not in _GROUPS:
        raise KubectlError(f'error: the server doesn\'t have a resource type "{resource}"')
    base, plural = _GROUPS[resource]
    where = f"/namespaces/{namespace}" if namespace and resource not in _CLUSTER_SCOPED else ""
    return f"{base}{where}/{plural}" + (f"/{name}" if name else "")


def get(server: ApiConnection, words: argparse.Namespace) -> None:
    """Objects as JSON or by their names, or the changes of one."""
    resource, *names = words.words
    namespace = "" if words.all_namespaces else words.namespace or server.namespace
    if words.watch:
        server.ask("GET", _path(resource, namespace, names[0]))
        query = urllib.parse.urlencode({"watch": "1", "fieldSelector": f"metadata.name={names[0]}"})
        for line in server.opened("GET", f"{_path(resource, namespace)}?{query}"):
            sys.stdout.write(line.decode())
            sys.stdout.flush()
        return
    query = f"?fieldSelector={urllib.parse.quote(words.field_selector)}" if words.field_selector else ""
    found = json.loads(server.ask("GET", _path(resource, namespace, *names[:1]) + query))
    if words.output == "json":
        sys.stdout.write(f"{json.dumps(found, indent=4)}\n")
        return
    for each in found.get("items", [found]):
        sys.stdout.write(f"{_GROUPS[resource][1].removesuffix('s')}/{each['metadata']['name']}\n")


def create(server: ApiConnection, words: argparse.Namespace) -> None:
    """The object of stdin."""
    value = json.loads(sys.stdin.read())
    path = _path(_KINDS[value["kind"]], words.namespace or server.namespace)
    query = urllib.parse.urlencode({"fieldManager": words.field_manager})
    made = server.ask("POST", f"{path}?{query}", json.dumps(value))
    sys.stdout.write(f"{made}\n" if words.output == "json" else f"{value['metadata']['name']} created\n")


def patch(server: ApiConnection, words: argparse.Namespace) -> None:
    """A patch of one object."""
    resource, name = words.words
    path = _path(resource, words.namespace or server.namespace, name)
    query = urllib.parse.urlencode({"fieldManager": words.field_manager})
    sys.stdout.write(server.ask("PATCH", f"{path}?{query}", words.patch, _PATCHES[words.type]) + "\n")


def delete(server: ApiConnection, words: argparse.Namespace) -> None:
    """What a path names, by the DeleteOptions of a file."""
    sys.stdout.write(server.ask("DELETE", words.raw, Path(words.filename).read_text()) + "\n")


def configure(config: Object, words: argparse.Namespace) -> None:
    """What `kubectl config` prints."""
    if words.words == ["current-context"]:
        sys.stdout.write(f"{config.get('current-context', '')}\n")
    else:
        sys.stdout.write(f"{json.dumps(config)}\n")


def main() -> int:
    """Run one verb."""
    if sys.argv[1:2] == ["vc"]:
        os.execvp("kubectl-vc", ["kubectl-vc", *sys.argv[2:]])  # noqa: S606, S607 - as kubectl does
    parser = argparse.ArgumentParser(prog="kubectl")
    parser.add_argument("verb", choices=("get", "create", "patch", "delete", "config"))
    parser.add_argument("words", nargs="*")
    for flag in ("watch", "output-watch-events", "all-namespaces"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in (
        "kubeconfig",
        "context",
        "namespace",
        "output",
        "filename",
        "field-selector",
        "type",
        "patch",
    ):
        parser.add_argument(f"--{flag}", default="")
    parser.add_argument("--field-manager", default="kubectl-create")
    # A path, and of `config view` a switch.
    parser.add_argument("--raw", nargs="?", default="")
    words = parser.parse_intermixed_args()
    file = words.kubeconfig or os.environ["KUBECONFIG"]  # noqa: TID251 - as kubectl finds it
    config: Object = yaml.safe_load(Path(file).read_text())
    config["current-context"] = words.context or config.get("current-context", "")
    try:
        if words.verb == "config":
            configure(config, words)
        else:
            verbs = {"get": get, "create": create, "patch": patch, "delete": delete}
            verbs[words.verb](ApiConnection(config), words)
    except KubectlError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
