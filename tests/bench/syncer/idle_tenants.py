# SPDX-License-Identifier: Apache-2.0
"""Fake API servers of idle tenants: `python -m tests.bench.syncer.idle_tenants --count N`.

Prints the kubeconfigs as one JSON array, and serves until it is ended. Each has one namespace.
"""

import argparse
import asyncio
import json
import sys

from daemonkit.kube.resources import NAMESPACES
from devkit.kube.apiserver import FakeApiserver
from devkit.pki import Authority
from tests.bench.syncer.loader import NAMESPACE


async def _serve(count: int) -> None:
    found = []
    servers = []
    for number in range(count):
        authority = Authority.create(f"idle-{number}")
        server = FakeApiserver(authority=authority, client_ca_pem=authority.cert_pem)
        server.storage.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await server.start()
        servers.append(server)
        found.append(server.kubeconfig(authority.issue("admin", usages=["client"])))
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.syncer.idle_tenants", description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    asyncio.run(_serve(parser.parse_args().count))
