# SPDX-License-Identifier: Apache-2.0
"""The schemas that pump tests make objects of are those of the Kubernetes that this ring runs."""

import subprocess
from pathlib import Path

from tests.kube_schemas import generate


def test_the_schemas_are_those_of_the_source() -> None:
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout
    made = generate.made(generate.module_path(Path(cache.strip())))
    assert made == generate.OUTPUT.read_text(), "run: python3 -m tests.kube_schemas.generate"
