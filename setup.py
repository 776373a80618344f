# SPDX-License-Identifier: Apache-2.0
"""Compiles vn-agent's byte path with mypyc where that is asked for; the rest is in pyproject.toml.

The same sources, type-checked by the same mypy, run 1.4 times as fast as machine code
(docs/decisions/0010). `VCNODE_COMPILE=1` asks for it, as building needs a C compiler and Python's
headers; without it the wheel is pure. What is listed runs for every request or every read; the
sources of tenants, pages and settings stay as they are.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

COMPILED = (
    "daemonkit/admission/handshake_accounts.py",
    "daemonkit/token_bucket.py",
    "vnagent/audit_log.py",
    "vnagent/core/access.py",
    "vnagent/core/apiserver_request.py",
    "vnagent/core/audit.py",
    "vnagent/core/client_chain.py",
    "vnagent/core/framing.py",
    "vnagent/core/head.py",
    "vnagent/core/kubelet_facts.py",
    "vnagent/core/kubelet_refusal.py",
    "vnagent/core/kubelet_request.py",
    "vnagent/core/limits.py",
    "vnagent/core/log_routes.py",
    "vnagent/core/query.py",
    "vnagent/core/replies.py",
    "vnagent/core/requests.py",
    "vnagent/core/upstream_request.py",
    "vnagent/dispatch.py",
    "vnagent/downstream/admission.py",
    "vnagent/downstream/client_connection.py",
    "vnagent/downstream/handshakes.py",
    "vnagent/exchange/logs.py",
    "vnagent/exchange/stream.py",
    "vnagent/metrics.py",
    "vnagent/request_log.py",
    "vnagent/state.py",
    "vnagent/transport/cipher.py",
    "vnagent/transport/poll_groups.py",
    "vnagent/transport/poller.py",
    "vnagent/transport/selector.py",
    "vnagent/transport/timing_wheel.py",
    "vnagent/transport/tls_connection.py",
    "vnagent/transport/tunnel.py",
    "vnagent/upstream/pool.py",
    "vnagent/upstream/session.py",
    "vnagent/workers/usage_table.py",
)


def extensions() -> list[Extension]:
    """The modules to compile: none, unless asked."""
    if os.environ.get("VCNODE_COMPILE") != "1":  # noqa: TID251 - a build has no configuration file
        return []
    from mypyc.build import mypycify

    # With setuptools loaded they are setuptools' own.
    return cast("list[Extension]", mypycify(list(COMPILED), opt_level="3", debug_level="0"))


class SdistWithLinks(sdist):
    """With links as links. setuptools leaves out those to folders, and copies the others."""

    def make_release_tree(self, base_dir: str, files: Sequence[str]) -> None:
        """Make the tree that is packed."""
        super().make_release_tree(base_dir, files)
        for link in Path("packaging").rglob("*"):
            if link.is_symlink():
                copy = Path(base_dir) / link
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.unlink(missing_ok=True)
                copy.symlink_to(link.readlink())


setup(ext_modules=extensions(), cmdclass={"sdist": SdistWithLinks})
