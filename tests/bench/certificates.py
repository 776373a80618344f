# SPDX-License-Identifier: Apache-2.0
"""What a tenant's certificates cost vc-operator: `python -m tests.bench.certificates`.

CPU time of all authorities, keys and leaves of one control plane with their Secrets, of a reconcile that
finds nothing due, and the memory that the first certificate takes. The goal is 10 ms for a tenant. Single
thread, process clock.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tenancy import keys
from tenant_operator.pki import catalog, issuing, renewal, rotating
from tenant_operator.pki.facts import SecretFacts, facts_of
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import NOW

Secrets = dict[str, SecretFacts]


def _issue() -> tuple[Secrets, Secrets]:
    """All Secrets of a control plane, made and read once: of authorities, and of leaves."""
    plane = control_planes.control_plane()
    pairs = {spec.secret: issuing.new_authority(spec, NOW) for spec in catalog.authorities(plane)}
    bundle = pairs["cluster-ca"].certificate_pem
    leaves = {}
    for spec in control_planes.specs(plane):
        authority = pairs[spec.authority]
        digest = catalog.spec_digest(spec, facts_of(authority.certificate_pem).spki_sha256, bundle)
        data = issuing.leaf_data(spec, issuing.issue_pair(spec, authority, NOW), bundle)
        issuing.secret_of(spec.namespace, spec.secret, data, plane.labels, {keys.SPEC_DIGEST: digest})
        leaves[spec.secret] = control_planes.kept(data, {keys.SPEC_DIGEST: digest})
    for data, annotations in (rotating.new_service_account_keys(), rotating.new_encryption_config()):
        issuing.secret_of(plane.key, "keys", data, plane.labels, annotations)
    return {
        name: control_planes.kept(issuing.authority_data(pair), {}) for name, pair in pairs.items()
    }, leaves


def _reconcile(authorities: Secrets, leaves: Secrets) -> None:
    for spec in control_planes.specs():
        authority = authorities[spec.authority].certificate
        assert authority is not None
        digest = catalog.spec_digest(spec, authority.spki_sha256, b"")
        renewal.leaf_due(leaves[spec.secret], digest, authority, NOW)


def _cpu_ms(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1000


def _rss_mb() -> float:
    fields = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in fields if line.startswith("Rss:")) * 1024 / 1e6


def samples_ms(rounds: int) -> list[float]:
    """CPU time of all certificates and keys of a tenant, in each round."""
    return [_cpu_ms(_issue) for _ in range(rounds)]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    samples = sorted(samples_ms(rounds))
    authorities, leaves = _issue()
    settled = statistics.median(_cpu_ms(lambda: _reconcile(authorities, leaves)) for _ in range(rounds))
    median, p95 = statistics.median(samples), samples[-rounds // 20]
    sys.stdout.write(
        f"{len(authorities)} authorities, {len(leaves)} leaves, 2 Secrets of keys; {rounds} rounds\n"
        f"CPU of a tenant's PKI: median {median:.1f} ms, p95 {p95:.1f} ms\n"
        f"CPU of a reconcile with nothing due: {settled:.2f} ms; RSS of this process {_rss_mb():.0f} MB\n"
    )


if __name__ == "__main__":
    main()
