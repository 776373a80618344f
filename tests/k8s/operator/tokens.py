# SPDX-License-Identifier: Apache-2.0
"""A token of a service account of a tenant, as a client keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.k8s.operator.tenants import OperatedTenant

_ACCOUNT = "system:serviceaccount:default:default"


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """Of the account `default` in namespace `default`, valid for an hour."""

    tenant: OperatedTenant
    text: str = field(repr=False)

    @classmethod
    def issue(cls, tenant: OperatedTenant) -> IssuedToken:
        """By a TokenRequest."""
        made = tenant.api().create(
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )
        return cls(tenant, made["status"]["token"])

    def is_valid(self) -> bool:
        """Whether the tenant's API server takes it for the account's."""
        reply = replace(self.tenant.api().endpoint, leaf=None).request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            body=b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}',
            headers={"Authorization": f"Bearer {self.text}", "Content-Type": "application/json"},
        )
        return reply.status == 201 and reply.json()["status"]["userInfo"]["username"] == _ACCOUNT
