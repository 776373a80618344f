# SPDX-License-Identifier: Apache-2.0
"""What runs in the super cluster as it is released: images, kustomize bases and the Helm chart.

A site's own part is small: images by digest, and the API server's address. It is written once for kustomize,
as a kustomization on `packaging/cluster`, and once for Helm, as values.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.ring.processes import RingError, run
from tests.k8s.ring.shipped import PACKAGING, ROOT

SYNCER, OPERATOR, WEBHOOK = "vc-syncer", "vc-operator", "dnsconfig-webhook"
_REGISTRY = "ring.test/vcnode"
_BUILT_S = 240.0
_RENDERED_S = 60.0


@dataclass(frozen=True, slots=True)
class Images:
    """Archives for containerd, and the digests that manifests name."""

    directory: Path
    digests: dict[str, str]

    @property
    def archives(self) -> list[Path]:
        return sorted(self.directory.glob("*.tar"))


def build_images(tree: Path, directory: Path, registry: str = _REGISTRY) -> Images:
    """All images from an installed tree; raises `RingError`.

    Their base is what this machine's mirror has now: a test must not fail as Debian published an update.
    """
    words = ["packaging/image.py", "--tree", str(tree), "--out", str(directory), "--registry", registry]
    run([sys.executable, *(str(ROOT / words[0]), *words[1:]), "--newest"], timeout_s=_BUILT_S)
    return Images(directory, json.loads((directory / "digests.json").read_text()))


def site_kustomization(
    directory: Path, images: Images, address: str, port: int, agents_authority: str
) -> Path:
    """A site's kustomization, in a directory of its own; `agents_authority` is that of vn-agents, as PEM."""
    directory.mkdir()
    server = f"https://{address}:{port}"
    config = next(
        each
        for each in yaml.safe_load_all((PACKAGING / "webhook" / "deployment.yaml").read_text())
        if each["kind"] == "ConfigMap"
    )
    kubeconfig = config["data"]["kubeconfig"].replace("https://10.96.0.1", server)
    environment = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": address},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(port)},
    ]

    def with_environment(name: str) -> dict[str, str]:
        container = {"name": name, "env": environment}
        spec = {"template": {"spec": {"containers": [container]}}}
        return {"patch": json.dumps(_patch("apps/v1", "Deployment", name, spec=spec))}

    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        # kustomize takes no absolute path.
        "resources": [str(_relative(PACKAGING / name, directory)) for name in ("cluster", "operator")],
        "configMapGenerator": [
            {"name": "vn-agent-ca", "namespace": "vcnode-system", "literals": [f"ca.crt={agents_authority}"]}
        ],
        "generatorOptions": {"disableNameSuffixHash": True},
        "images": [
            {"name": name, "newName": f"{_REGISTRY}/{name}", "digest": digest}
            for name, digest in images.digests.items()
        ],
        "patches": [
            {"patch": json.dumps(_patch("v1", "ConfigMap", WEBHOOK, data={"kubeconfig": kubeconfig}))},
            *map(with_environment, (SYNCER, OPERATOR)),
        ],
        "sortOptions": {"order": "fifo"},
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return directory


def helm_values(images: Images, address: str, port: int) -> dict[str, Any]:
    """The same site for the chart."""

    def image(name: str) -> dict[str, str]:
        return {"repository": f"{_REGISTRY}/vcnode-{name}", "digest": images.digests[f"vcnode-{name}"]}

    environment = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": address},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(port)},
    ]
    return {
        "syncer": {"image": image(SYNCER), "env": environment},
        "operator": {"enabled": True, "image": image(OPERATOR), "env": environment},
        "webhook": {"image": image(WEBHOOK), "server": f"https://{address}:{port}"},
    }


def kustomize(kubectl: str, directory: Path) -> str:
    """What `kubectl kustomize` makes of a directory; raises `RingError`."""
    return _output([kubectl, "kustomize", str(directory)])


def helm_template(helm: str, values: dict[str, Any], directory: Path, namespace: str) -> str:
    """What `helm template` makes of the chart; raises `RingError`."""
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    chart = PACKAGING / "helm" / "vcnode"
    return _output([helm, "template", "vcnode", str(chart), "--namespace", namespace, "--values", str(file)])


def helm_lint(helm: str) -> str:
    """`helm lint --strict`; raises `RingError` with what it found."""
    return _output([helm, "lint", "--strict", str(PACKAGING / "helm" / "vcnode")])


def _output(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_RENDERED_S, check=False)
    if done.returncode:
        raise RingError(f"{' '.join(argv)}: {done.stderr}{done.stdout}")
    return done.stdout


def _patch(api_version: str, kind: str, name: str, **parts: object) -> dict[str, object]:
    metadata = {"name": name, "namespace": "vcnode-system"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def _relative(target: Path, start: Path) -> Path:
    return Path(*[".."] * len(start.resolve().relative_to("/").parts), target.relative_to("/"))
