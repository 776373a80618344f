# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from daemonkit.config import yaml_values
from devkit.pki import Authority
from tenancy.document import parse_tenant
from tenancy.tenant import Role, Tenant
from vcnode.core import tenant_file
from vcnode.core.certificates import Offer
from vcnode.terminal import ToolError

UNTIL = dt.datetime(2028, 1, 1, tzinfo=dt.UTC)
OLD_CA, NEW_CA = Authority.create("old").der, Authority.create("new").der
A, B = "a" * 64, "b" * 64


def offer(spki: str, *authorities: bytes) -> Offer:
    return Offer(authorities or (OLD_CA,), spki, "CN=x", UNTIL)


def test_first_client_makes_the_tenant() -> None:
    assert tenant_file.with_client(None, "acme", offer(A), Role.APISERVER, None) == Tenant(
        "acme", (OLD_CA,), {A: Role.APISERVER}, "cluster.local"
    )
    made = tenant_file.with_client(None, "acme", offer(A), Role.METRICS, "acme.example")
    assert (made.cluster_domain, made.clients) == ("acme.example", {A: Role.METRICS})


def test_rotation_keeps_old_clients_and_authorities() -> None:
    old = Tenant("acme", (OLD_CA,), {A: Role.APISERVER})
    new = tenant_file.with_client(old, "acme", offer(B, NEW_CA), Role.APISERVER, None)
    assert new == Tenant("acme", (OLD_CA, NEW_CA), {A: Role.APISERVER, B: Role.APISERVER})
    assert tenant_file.with_client(new, "acme", offer(B, NEW_CA), Role.APISERVER, None) == new


def test_role_and_cluster_domain_are_not_changed() -> None:
    old = Tenant("acme", (OLD_CA,), {A: Role.METRICS})
    with pytest.raises(ToolError, match="has the role metrics already"):
        tenant_file.with_client(old, "acme", offer(A), Role.APISERVER, None)
    with pytest.raises(ToolError, match=r"has the cluster domain cluster\.local, not other"):
        tenant_file.with_client(old, "acme", offer(B), Role.APISERVER, "other")


@pytest.mark.parametrize("key", ["", "Acme", "a.b", "kube-system", "x" * 64])
def test_invalid_key_is_an_error(key: str) -> None:
    with pytest.raises(ToolError, match="cluster key"):
        tenant_file.with_client(None, key, offer(A), Role.APISERVER, None)


def test_client_beyond_the_limit_is_an_error() -> None:
    many = {f"{number:064x}": Role.APISERVER for number in range(64)}
    with pytest.raises(ToolError, match="more than 64 entries"):
        tenant_file.with_client(Tenant("acme", (OLD_CA,), many), "acme", offer(A), Role.APISERVER, None)


def test_client_is_removed_by_the_start_of_its_hash() -> None:
    tenant = Tenant("acme", (OLD_CA,), {A: Role.APISERVER, B: Role.METRICS, "a" * 63 + "0": Role.METRICS})
    assert tenant_file.without_client(tenant, "BBBBBBBB") == (
        Tenant("acme", (OLD_CA,), {A: Role.APISERVER, "a" * 63 + "0": Role.METRICS}),
        B,
    )
    for start, reason in (("b" * 7, "at least 8"), ("c" * 8, "no client"), ("a" * 8, "2 clients")):
        with pytest.raises(ToolError, match=reason):
            tenant_file.without_client(tenant, start)


@pytest.mark.parametrize(
    "tenant",
    [
        Tenant("acme", (OLD_CA, NEW_CA), {A: Role.APISERVER, B: Role.METRICS}, "acme.example"),
        Tenant("007", (OLD_CA,), {"1" * 64: Role.APISERVER, "1e" + "1" * 62: Role.APISERVER}, "1.5"),
        Tenant("null", (OLD_CA,), {}, "true"),
        Tenant("spiffe-only", (), {}),
    ],
)
def test_file_is_read_as_the_tenant_it_was_written_for(tenant: Tenant) -> None:
    assert parse_tenant(yaml_values.decode(tenant_file.render(tenant, {}))) == tenant


def test_notes_are_kept_by_an_edit() -> None:
    tenant = Tenant("acme", (OLD_CA,), {A: Role.APISERVER, B: Role.METRICS})
    text = tenant_file.render(tenant, {A: "CN=a # b, until 2028-01-01"})
    assert tenant_file.notes_of(text) == {A: "CN=a # b, until 2028-01-01"}
    assert tenant_file.render(tenant, tenant_file.notes_of(text)) == text


def test_note_cannot_inject_clients() -> None:
    tenant = Tenant("acme", (OLD_CA,), {A: Role.APISERVER})
    text = tenant_file.render(tenant, {A: f"x\n    - spkiSHA256: {B}\n      role: apiserver"})
    assert parse_tenant(yaml_values.decode(text)) == tenant


def test_file_is_written_out() -> None:
    text = tenant_file.render(Tenant("acme", (OLD_CA,), {A: Role.APISERVER}), {A: "CN=x"})
    assert text.startswith(
        f"""apiVersion: vcnode.io/v1alpha1
kind: Tenant
metadata:
  name: "acme"
spec:
  clusterDomain: "cluster.local"
  clients:
    - spkiSHA256: "{A}"  # CN=x
      role: apiserver
  certificateAuthority: |
    -----BEGIN CERTIFICATE-----
"""
    )
    assert text.endswith("    -----END CERTIFICATE-----\n")
