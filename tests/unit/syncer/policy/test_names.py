# SPDX-License-Identifier: Apache-2.0
"""Names of hosts that lead into the super cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.policy import names

INTERNAL = [
    "",
    ".",
    "localhost",
    "LOCALHOST.",
    "localhost.localdomain",
    "a.localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.",
    "kubernetes.default.svc.cluster",
    "kubernetes.default.svc.cluster.local",
    "KUBERNETES.default.svc.CLUSTER.local.",
    "10-0-0-1.kube-system.pod.cluster.local",
    "cluster.local",
    "east.example",
    "api.east.example",
    "kube-dns.kube-system",
    "web.vcs-7aad2b-tenant-00-shop",
    "web.team1",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data.ec2.internal",
    "ip-10-0-0-1.eu-west-1.compute.internal",
    "169.254.169.254",
    "127.1",
    "fe80::1",
    "::1",
]
PUBLIC = [
    "example.com",
    "Example.COM.",
    "db.example.com",
    "svc.example.com",
    "a.svc.example.com",
    "xn--e1afmkfd.xn--p1ai",
    "x.notcluster.locality",
    "api.notest.example",
]


@pytest.mark.parametrize("name", INTERNAL)
def test_internal_names(name: str) -> None:
    assert names.is_internal(name, "east.example")


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name: str) -> None:
    assert not names.is_internal(name, "east.example")


@given(st.text(max_size=20))
def test_any_text_has_an_answer(name: str) -> None:
    assert names.is_internal(f"{name}.svc", "cluster.local")
    assert names.is_internal(name, "cluster.local") in (True, False)
