# SPDX-License-Identifier: Apache-2.0
"""Steady churn: `python -m tests.bench.services.churn FILE` until it is stopped.

A process of its own, so that the measurement does not wait for the churn. Each change replaces one
endpoint of one Service, as a rolling update does; the number of rules stays.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devkit.pki import Leaf
from tests.bench.services.cluster import BenchCluster, BenchTenant, Writer
from tests.bench.services.objects import Addresses
from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess

RATE_PER_S = 20.0
# Beyond all addresses of the run itself.
_FIRST_ADDRESS = 2_000_000


def start(cluster: BenchCluster, tenant: BenchTenant, services: Sequence[str]) -> RingProcess:
    """Change the endpoints of these Services of a tenant, one after the other, until it is stopped."""
    endpoint = cluster.apiserver.api.endpoint
    assert endpoint.leaf is not None
    file = cluster.directory / "churn.json"
    file.touch(mode=0o600)
    document = {
        "network": endpoint.namespace.name,
        "address": endpoint.address,
        "port": endpoint.port,
        "authority": endpoint.authority_pem.decode(),
        "certificate": endpoint.leaf.cert_pem.decode(),
        "key": endpoint.leaf.key_pem.decode(),
        "tenant": tenant.key,
        "namespace": tenant.namespace,
        "services": {name: tenant.services[name] for name in services},
    }
    file.write_text(json.dumps(document))
    return RingProcess(
        "churn",
        [sys.executable, "-m", "tests.bench.services.churn", str(file)],
        cluster.directory / "churn.log",
        directory=Path(__file__).parents[3],
    )


def main() -> None:
    """Write at a steady rate; late writes are not made up for."""
    given = json.loads(Path(sys.argv[1]).read_text())
    writer = Writer(
        TlsEndpoint(
            NetworkNamespace(given["network"], given["address"]),
            given["address"],
            given["port"],
            given["authority"].encode(),
            Leaf.from_pem(given["certificate"].encode(), given["key"].encode()),
        )
    )
    addresses = Addresses(_FIRST_ADDRESS)
    services = list(given["services"].items())
    number = 0
    while True:
        begun_s = time.monotonic()
        name, endpoints = services[number % len(services)]
        writer.set_endpoints(given["namespace"], name, given["tenant"], [*endpoints[:-1], addresses.next()])
        number += 1
        # Without a rate, a faster machine would have more churn.
        left_s = 1 / RATE_PER_S - (time.monotonic() - begun_s)
        time.sleep(max(0.0, left_s))  # pace: the rate is part of what is measured


if __name__ == "__main__":
    main()
