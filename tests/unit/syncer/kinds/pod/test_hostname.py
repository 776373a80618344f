# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from syncer.core.objects import Object
from tests.unit.syncer.kinds.pod.pods import created, plan, pod, super_pod, view

NAMED: Object = {"hostname": "db-0", "subdomain": "db", "setHostnameAsFQDN": True}
FQDN = "db-0.db.plain.svc.cluster.local"


def changes(spec: Object, found: Object | None = None, domain: str = "cluster.local") -> list[str]:
    seen = view()
    seen = replace(seen, tenant=replace(seen.tenant, cluster_domain=domain))
    return [each.message for each in plan(pod(spec), found, seen).changes]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(NAMED, {"hostname": "db-0", "hostnameOverride": FQDN}, id="its name in the tenant"),
        pytest.param(
            NAMED | {"setHostnameAsFQDN": False}, {"hostname": "db-0", "setHostnameAsFQDN": False}, id="not"
        ),
        pytest.param({"setHostnameAsFQDN": True}, {"setHostnameAsFQDN": True}, id="without a subdomain"),
        pytest.param(NAMED | {"subdomain": "d" * 40}, {"hostname": "db-0"}, id="too long for a kernel"),
        pytest.param(
            NAMED | {"hostNetwork": True},
            {"hostname": "db-0", "setHostnameAsFQDN": True},
            id="the node's own",
        ),
    ],
)
def test_the_hostname_of_a_super_pod(spec: Object, expected: Object) -> None:
    found = created(pod(spec))["spec"]
    names = ("hostname", "hostnameOverride", "setHostnameAsFQDN", "subdomain")
    assert {name: found[name] for name in names if name in found} == expected


def test_what_has_no_effect_is_reported() -> None:
    assert changes(NAMED) == []
    there = super_pod(pod(NAMED))
    assert changes(NAMED, there) == []
    del there["spec"]["hostnameOverride"]
    (message,) = changes(NAMED, there)
    assert message.endswith("sets no hostname with dots (feature gate HostnameOverride)")
    long = f"db-0.{'d' * 40}.plain.svc.cluster.local"
    assert changes(NAMED | {"subdomain": "d" * 40}) == [f"has no effect: {long} is longer than 64 characters"]
    assert changes(NAMED, domain="") == [
        "has no effect: the DNS domain of this cluster is not known to the syncer"
    ]
