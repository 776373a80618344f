# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' conformance tests through a tenant, beside the bare super cluster.

    make conformance [FOCUS=node] [TENANT=1]

FOCUS is an area (node, storage, ...), `quick`, or a regular expression. TENANT=0 is the bare cluster alone,
TENANT=1 the tenant alone. Results go to build/conformance. Exit 1 when a spec fails through the tenant that
docs/conformance.md does not list, or on the bare cluster.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.k8s import build
from tests.k8s.conformance import ginkgo, ground, images, selection
from tests.k8s.conformance.results import SpecResult, differences, table
from tests.k8s.ring import machine
from tests.k8s.ring.controlplane import Apiserver

_ROOT = Path(__file__).resolve().parents[3]
_TARGET = _ROOT / "build" / "conformance"
_REASONS = _ROOT / "docs" / "conformance.md"
_BARE, _TENANT = "bare", "tenant"
_TITLES = {"": (_BARE, _TENANT), "0": (_BARE,), "1": (_TENANT,)}


def main() -> int:
    """Start everything, run, print the table, stop everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--focus", default="", help="an area, a named selection, or a regular expression")
    parser.add_argument("--skip", default="", help="a regular expression of specs to leave out")
    parser.add_argument("--tenant", choices=sorted(_TITLES), default="", help="0: bare, 1: tenant, else both")
    parser.add_argument("--processes", type=int, default=4, help="of ginkgo")
    parser.add_argument("--timeout", type=int, default=3000, help="of one run, in seconds")
    parser.add_argument("--cache", type=Path, default=build.DEFAULT_CACHE)
    parser.add_argument("--target", type=Path, default=_TARGET, help="where results and logs go")
    arguments = parser.parse_args()
    binaries, lacks = machine.find(arguments.cache)
    more, unbuilt = build.find_binaries(arguments.cache, build.go_version() or "", build.CONFORMANCE)
    lacks += [f"{name} not built: run python3 tests/k8s/build.py --conformance" for name in unbuilt]
    if lacks:
        sys.stderr.write(f"conformance: {'; '.join(lacks)}\n")
        return 1
    binaries = build.Binaries({**binaries.paths, **more.paths})
    target: Path = arguments.target
    target.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[SpecResult]] = {}
    archive = images.archive(binaries, arguments.cache)
    with ExitStack() as stack:
        made = ground.start(binaries, archive, stack)
        stack.callback(_keep_logs, made.ring.directory, target / "logs")
        _say(f"ring with images after {made.ring.started_s:.0f} s")
        for title in _TITLES[arguments.tenant]:
            began = time.monotonic()
            runs[title] = ginkgo.run(
                title,
                _apiserver(made, title),
                made.ring.control,
                binaries,
                selection.pattern(arguments.focus),
                target,
                processes=arguments.processes,
                timeout_s=arguments.timeout,
                skip=arguments.skip,
            )
            _say(f"{title}: {len(runs[title])} specs in {time.monotonic() - began:.0f} s")
    text = "\n".join([table(runs), "", *differences(runs)])
    (target / "table.md").write_text(text + "\n")
    _say(text)
    listed = _REASONS.read_text() if _REASONS.exists() else ""
    unexpected = [
        each
        for title, found in runs.items()
        for each in found
        if not each.has_passed and each.state != "skipped" and (title == _BARE or each.name not in listed)
    ]
    for each in unexpected:
        _say(f"UNEXPECTED: sig-{each.area} {each.name}")
    passed = sum(each.has_passed for found in runs.values() for each in found)
    _say(f"{passed} passed, {len(unexpected)} failed")
    return int(bool(unexpected) or not any(runs.values()))


def _apiserver(made: ground.Ground, title: str) -> Apiserver:
    if title == _BARE:
        made.start_super_dns()
        return made.ring.super_cluster
    return made.start_tenant().apiserver


def _keep_logs(directory: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in directory.glob("**/*.log"):
        if "kubelet/" not in str(path.relative_to(directory)) and os.access(path, os.R_OK):
            shutil.copy(path, target / "-".join(path.relative_to(directory).parts))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
