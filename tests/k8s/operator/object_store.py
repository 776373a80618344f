# SPDX-License-Identifier: Apache-2.0
"""An object store as a pod of the super cluster, and an image with the program that keeps backups there.

The image is one: `serve` is the store, `put KEY FILE` and `get KEY FILE` are what Jobs of the operator run.
"""

from __future__ import annotations

from pathlib import Path

from tests.k8s.operator import releases, signer_image
from tests.k8s.operator.daemon import NAMESPACE as OPERATOR
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.ring import images
from tests.k8s.ring.processes import wait_for
from tests.k8s.syncer.shops import object_of

IMAGE = "ring.test/backup:1"
TOKEN = "token-of-the-store"
# Jobs have their volume at /backup.
_PATH = "usr/bin/objects"
_NAME = "objects"
_NAMESPACE = "default"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_PORT = 8443
_READY_S = 60.0
# Behind port 443, as the fence of Jobs allows.
_URL = f"http://{_NAME}.{_NAMESPACE}.svc:443"
_PROGRAM = f"""#!{signer_image.PYTHON} -ISE
import http.server, os, pathlib, sys, urllib.request

KEPT = {{}}

class Store(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        if self.headers["Authorization"] != "Bearer {TOKEN}":
            return self.answer(401, b"")
        KEPT[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201, b"")

    def do_GET(self):
        self.answer(200 if self.path in (*KEPT, "/") else 404, KEPT.get(self.path, b""))

    def answer(self, code, body):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

verb, *rest = sys.argv[1:]
if verb == "serve":
    http.server.ThreadingHTTPServer(("", {_PORT}), Store).serve_forever()
key, file = rest
url = "{_URL}/" + key
if verb == "put":
    headers = {{"Authorization": "Bearer " + os.environ["TOKEN"]}}
    request = urllib.request.Request(url, pathlib.Path(file).read_bytes(), headers, method="PUT")
    urllib.request.urlopen(request, timeout=30).read()
else:
    pathlib.Path(file).write_bytes(urllib.request.urlopen(url, timeout=30).read())
"""


def _write(archive: Path) -> None:
    program = {_PATH: (_PROGRAM.encode(), 0o755)}
    layers = [images.layer_of(dict(signer_image.interpreter())), images.layer_of(program)]
    images.write_archive(archive, IMAGE, layers, {"Entrypoint": [f"/{_PATH}"]})


def start(ground: OperatorGround) -> None:
    """Give all nodes the image, and run the store, which keeps objects in memory and wants its token."""
    releases.import_image(ground.ring, _write)
    container = {
        "name": "store",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve"],
        "readinessProbe": {"httpGet": {"path": "/", "port": _PORT}, "periodSeconds": 1},
    }
    labels = {"app": _NAME}
    pod = object_of("v1", "Pod", _NAME, spec={"containers": [container]})
    pod["metadata"]["labels"] = labels
    service = {"selector": labels, "ports": [{"port": 443, "targetPort": _PORT}]}
    ground.api.create(_PODS, pod, may_exist=True)
    ground.api.create(
        f"/api/v1/namespaces/{_NAMESPACE}/services",
        object_of("v1", "Service", _NAME, spec=service),
        may_exist=True,
    )
    credentials = object_of("v1", "Secret", "backup-credentials", stringData={"TOKEN": TOKEN})
    ground.api.create(f"/api/v1/namespaces/{OPERATOR}/secrets", credentials, may_exist=True)
    wait_for("the object store serves", lambda: _is_ready(ground), timeout_s=_READY_S)


def _is_ready(ground: OperatorGround) -> bool:
    conditions = ground.api.get(f"{_PODS}/{_NAME}").get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
