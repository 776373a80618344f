# SPDX-License-Identifier: Apache-2.0
"""What changes under a running agent: kubelet restarts, and certificates on each of three ends."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

import pytest

from devkit.files import replace_file
from devkit.pki import Authority, Leaf
from tests.k8s.ring.cluster import NODE, Ring
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.node import KUBELET_PORT
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant

# The kubelet watches its certificate files; the agent checks its own within 2 s.
_NOTICED_WITHIN_S = 15.0
# Issue: a leaf that is de-registered loses its live connections within 5 s.
_CUT_WITHIN_S = 5.0


def test_kubelet_restart(served: Ring, acme: RingTenant) -> None:
    served.node.stop_kubelet()
    try:
        down = acme.kubectl("logs", "web", "-c", "side")
        assert down.code == 1
        assert "tenant-1" not in down.error_text
    finally:
        served.node.start_kubelet()
    wait_for("logs after the restart", lambda: _works(acme.kubectl), timeout_s=20)
    # What was known of the pods outlived the restart: another's is still not there.
    reply = served.agent_as(acme.client).request("GET", "/containerLogs/x-default/web/main")
    assert reply.status == 404


def test_agent_restart_while_the_kubelet_is_away(served: Ring, acme: RingTenant) -> None:
    served.node.stop_kubelet()
    try:
        served.agent.stop()
        served.agent.start()
        # It has the pod's tenant from its saved state, and reports that the kubelet does not respond.
        reply = served.agent_as(acme.client).request("GET", "/containerLogs/default/web/side")
        # Without saved state it would not know the tenant, and return 503.
        assert reply.status == 502
    finally:
        served.node.start_kubelet()
    wait_for("logs after both restarts", lambda: _works(acme.kubectl), timeout_s=20)


def test_rotation_of_the_agents_kubelet_certificate(served: Ring, acme: RingTenant) -> None:
    clients = served.kubelet_identity.client_authority
    old, new = served.authorities.kubelet_clients, Authority.create("kubelet-clients-2")
    fresh = served.issue_agent_kubelet_leaf(new)
    replace_file(clients, old.cert_pem + new.cert_pem)
    wait_for("kubelet trusts the new authority", _accepts(served, fresh), timeout_s=90)
    served.agent.identity.kubelet_client.write(fresh)
    try:
        # From here on the kubelet refuses every connection made with the old certificate.
        replace_file(clients, new.cert_pem)
        wait_for(
            "kubelet refuses the old authority",
            lambda: not _accepts(served, served.agent_kubelet_leaf)(),
            timeout_s=90,
        )
        wait_for(
            "exec with the new certificate",
            lambda: _shell_works(acme.kubectl),
            timeout_s=_NOTICED_WITHIN_S,
        )
        assert _works(acme.kubectl)
    finally:
        replace_file(clients, old.cert_pem)
        served.agent.identity.kubelet_client.write(served.agent_kubelet_leaf)
        wait_for(
            "the old certificate is back",
            lambda: _accepts(served, served.agent_kubelet_leaf)() and _works(acme.kubectl),
            timeout_s=90,
        )


def test_rotation_of_the_kubelets_serving_certificate(served: Ring, acme: RingTenant) -> None:
    before = _serving_certificate(served)
    served.kubelet_identity.serving.write(served.issue_kubelet_serving())
    wait_for(
        "kubelet serves the new certificate",
        lambda: _serving_certificate(served) != before,
        timeout_s=90,
    )
    assert _works(acme.kubectl)
    acme.kubectl("exec", "web", "-c", "main", "--", "true").check()
    # A kubelet that has started again resumes no session: now the new certificate must convince.
    _restart_kubelet(served)
    wait_for("logs by the new certificate", lambda: _works(acme.kubectl), timeout_s=20)
    acme.kubectl("exec", "web", "-c", "main", "--", "true").check()


def test_a_kubelet_of_another_authority_is_not_believed(served: Ring, acme: RingTenant) -> None:
    impostor = Authority.create("impostor").issue(f"system:node:{NODE}", sans_dns=[NODE], usages=("server",))
    served.kubelet_identity.serving.write(impostor)
    try:
        _restart_kubelet(served)
        for command in (("exec", "web", "-c", "main", "--", "true"), ("logs", "web")):
            result = acme.kubectl(*command)
            assert result.code != 0
            assert result.out == b""
            assert "cannot verify the kubelet of this node" in result.error_text
            assert "tenant-1" not in result.error_text
            assert "impostor" not in result.error_text
    finally:
        served.kubelet_identity.serving.write(served.issue_kubelet_serving())
        _restart_kubelet(served)
        wait_for("the kubelet is believed again", lambda: _works(acme.kubectl), timeout_s=20)


def test_rotation_of_the_tenants_client_certificate(served: Ring, acme: RingTenant) -> None:
    old, authority = acme.client, acme.apiserver.authority
    fresh = authority.issue("kube-apiserver-kubelet-client", usages=("client",))
    head = b"GET /containerLogs/default/web/side?follow=true HTTP/1.1\r\nHost: node\r\n\r\n"
    try:
        with served.agent_as(old).dial(timeout_s=_CUT_WITHIN_S) as stream:
            stream.sendall(head)
            received = stream.recv(65536)
            # Both are registered while the apiserver changes over: nothing is refused.
            _register(served, acme, fresh)
            _wait_served(served, fresh)
            acme.apiserver.kubelet_client.write(fresh)
            # A stream is a new connection, at which the apiserver reads its files again. It then
            # closes all it has, the one that it is just making included, so the first may fail.
            wait_for("exec with the new leaf", lambda: _shell_works(acme.kubectl), timeout_s=10)
            wait_for("audit of the new leaf", partial(_is_last, served, fresh), timeout_s=5)
            assert served.agent_as(old).request("GET", "/healthz").status == 200
            # The old leaf goes, and with it every connection that was made with it.
            acme.client = fresh
            _register(served, acme)
            while chunk := stream.recv(65536):
                received += chunk
        assert b"acme beside\n" in received
        assert served.agent_as(old).request("GET", "/healthz").status == 403
        assert _works(acme.kubectl)
    finally:
        # Later tests go by what the apiserver shows now, however far this one got.
        acme.client = fresh
        acme.apiserver.kubelet_client.write(fresh)
        _register(served, acme)


def test_a_tenant_that_is_removed_loses_its_streams(served: Ring, acme_x: RingTenant) -> None:
    follower = acme_x.kubectl.start("logs", "-f", "web", "-c", "side")
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"acme-x beside\n"
        served.agent.remove(acme_x)
        follower.wait(_CUT_WITHIN_S)
    finally:
        follower.kill()
        follower.communicate()
        _register(served, acme_x)
        wait_for("the tenant is back", lambda: _works(acme_x.kubectl), timeout_s=10)


def test_a_file_that_does_not_parse_changes_nothing(served: Ring, acme: RingTenant) -> None:
    errors = served.agent.series('vcnode_reloads_total{result="error"}')
    served.agent.register_text(acme, b"kind: [")
    try:
        wait_for(
            "the bad file is noticed",
            lambda: served.agent.series('vcnode_reloads_total{result="error"}') > errors,
            timeout_s=5,
        )
        assert _works(acme.kubectl)
    finally:
        _register(served, acme)


def _restart_kubelet(ring: Ring) -> None:
    ring.node.stop_kubelet()
    ring.node.start_kubelet()


def _works(kubectl: Kubectl) -> bool:
    result = kubectl("logs", "web", "-c", "side")
    return result.code == 0 and result.text.endswith(" beside\n")


def _shell_works(kubectl: Kubectl) -> bool:
    return kubectl("exec", "web", "-c", "main", "--", "true").code == 0


def _is_last(ring: Ring, leaf: Leaf) -> bool:
    """Whether the last decision in the audit log was about this leaf."""
    return bool(ring.agent.audit_lines()[-1]["identity"] == leaf.spki_sha256)


def _register(ring: Ring, tenant: RingTenant, *more: Leaf) -> None:
    ring.agent.register(tenant, tenant.registration(*more))


def _wait_served(ring: Ring, leaf: Leaf) -> None:
    def healthy() -> bool:
        return ring.agent_as(leaf).request("GET", "/healthz").status == 200

    wait_for("the new leaf is registered", healthy, timeout_s=_CUT_WITHIN_S)


def _accepts(ring: Ring, leaf: Leaf) -> Callable[[], bool]:
    """Whether the kubelet accepts a client certificate on a new connection."""

    def ask() -> bool:
        return ring.kubelet(leaf).request("GET", "/healthz").status == 200

    return ask


def _serving_certificate(ring: Ring) -> bytes:
    """The certificate that the kubelet serves now, of any authority.

    To a client that sends a server name: to others this version shows for ever the one it started
    with (Go's tls.Config asks GetCertificate only for a name, as long as it has Certificates).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    address = ring.node.namespace.address
    plain = ring.control.connect(address, KUBELET_PORT)
    with context.wrap_socket(plain, server_hostname=NODE) as connection:
        certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        pytest.fail("the kubelet shows no certificate")
    return certificate
