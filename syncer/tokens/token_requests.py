# SPDX-License-Identifier: Apache-2.0
"""The requests for the tokens of one tenant's pods, and the message about those that fail.

Nothing is remembered here. Texts of tokens are held for the time of two requests, and are in no message.
"""

import asyncio
import enum
from collections.abc import Callable

import msgspec

from daemonkit.backoff import backoff_s
from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import SECRETS, Resource
from syncer.core.objects import Object, uid_of
from syncer.core.plan import TokenRequest, Wait
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.write_rate import Charge
from syncer.tokens.documents import (
    IssuedToken,
    PodTokens,
    is_secret_of,
    issued_token,
    refusal_message,
    secret_of,
    secret_patch,
    token_request,
)

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
NOT_ISSUED = "TokensNotIssued"
NOT_SYNCED = "the tenant is not synced any more"
MAX_RESPONSE_BYTES = 256 * 1024
# A kube-apiserver that ends has no signer in its last moments, and refuses before another takes over: it is
# asked once more after 0.2, 0.4 and 0.8 s, for all tokens of a pod together.
MAX_REPEATS = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 1.0
MayWrite = Callable[[str, str, int], Charge | None]

_OBJECT = msgspec.json.Decoder(Object)
_MERGE_PATCH = "application/merge-patch+json"
_REASON_EXISTS = "AlreadyExists"


class RenewalFailure(enum.StrEnum):
    """Why tokens were not renewed, for the metrics."""

    TENANT_UNREACHABLE = "tenantUnreachable"
    TENANT_REFUSES = "tenantRefuses"
    SUPER_UNREACHABLE = "superUnreachable"
    SUPER_REFUSES = "superRefuses"
    NAMESPACE_NOT_OWNED = "namespaceNotOwned"
    NAME_CONFLICT = "nameConflict"
    WRITE_RATE = "writeRate"


class NotIssuedError(Exception):
    """A request failed; `wait` says so to the tenant. `is_secret_gone`: the Secret is to be made again."""

    def __init__(self, message: str, cause: RenewalFailure, *, is_secret_gone: bool = False) -> None:
        super().__init__(message)
        self.wait = Wait(NOT_ISSUED, message)
        self.cause = cause
        self.is_secret_gone = is_secret_gone


class TokenRequests(msgspec.Struct, frozen=True):
    """One tenant's. `super_client` is the super cluster's, for this tenant's objects.

    Before each write `is_served` is asked whether the tenant still is, `owns` whether a super namespace is
    its own now, and `may_write`, with the Secret's namespace and name and the bytes of the request, what it
    costs; None if the tenant's rate has no room. `wall` is the time of day in seconds.
    """

    cluster: TenantCluster
    client: Requester
    super_client: Requester
    is_served: Callable[[], bool]
    owns: Callable[[str], bool]
    may_write: MayWrite
    wall: Callable[[], float]

    async def issue(self, pod: PodTokens, requests: tuple[TokenRequest, ...]) -> tuple[IssuedToken, ...]:
        """Ask the tenant for tokens. Raises NotIssuedError."""
        path = SERVICE_ACCOUNTS.path(pod.namespace, pod.service_account) + "/token"
        found: list[IssuedToken] = []
        repeats = _Repeats()
        for each in requests:
            body = msgspec.json.encode(token_request(each.audience, each.expiration_s, pod.name, pod.uid))
            try:
                # The tenant's clock decides when it expires: count from before.
                now_s = self.wall()
                answer = await repeats.request(self.client, path, body)
            except ApiError as error:
                message = refusal_message(pod.service_account, pod.namespace, error.status.code)
                raise NotIssuedError(message, RenewalFailure.TENANT_REFUSES) from None
            except UnreachableError:
                message = "the tenant's API server does not answer a TokenRequest"
                raise NotIssuedError(message, RenewalFailure.TENANT_UNREACHABLE) from None
            issued = issued_token(each, answer, now_s)
            if issued is None:
                message = "the tenant's API server answers a TokenRequest without a token"
                raise NotIssuedError(message, RenewalFailure.TENANT_REFUSES)
            found.append(issued)
        return tuple(found)

    async def write(self, pod: PodTokens, issued: tuple[IssuedToken, ...], secret_uid: str) -> str | None:
        """Put tokens into the Secret; return its UID, None if another one has its name.

        Without a `secret_uid` the Secret is made. Raises NotIssuedError, also for one that is gone.
        """
        try:
            if secret_uid:
                return await self._patch(pod, issued, secret_uid)
            body = secret_of(pod, issued, self.cluster)
            try:
                return uid_of(await self._send(pod, "POST", SECRETS.path(pod.super_namespace), body))
            except ApiError as error:
                if error.status.code != 409 or error.status.reason != _REASON_EXISTS:
                    raise
            path = SECRETS.path(pod.super_namespace, pod.secret_name)
            actual = decoded(_OBJECT, await self.super_client.request("GET", path, {}))
            if not is_secret_of(actual, pod, self.cluster):
                return None
            return await self._patch(pod, issued, uid_of(actual))
        except ApiError as error:
            # The message of the server may repeat what was sent.
            code = error.status.code
        except UnreachableError:
            message = "the super cluster's API server does not answer"
            raise NotIssuedError(message, RenewalFailure.SUPER_UNREACHABLE) from None
        message = f"the super cluster refuses the Secret of the tokens ({code})"
        is_secret_gone = bool(secret_uid) and code in (404, 409)
        raise NotIssuedError(message, RenewalFailure.SUPER_REFUSES, is_secret_gone=is_secret_gone)

    async def remove(self, pod: PodTokens, secret_uid: str) -> bool:
        """Delete a pod's Secret; False where there was none to delete. Raises ApiError, UnreachableError."""
        if not secret_uid or not self.owns(pod.super_namespace):
            return False
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": secret_uid}}
        path = SECRETS.path(pod.super_namespace, pod.secret_name)
        try:
            await self.super_client.request("DELETE", path, {}, msgspec.json.encode(body))
        except ApiError as error:
            if error.status.code in (404, 409):  # not found, or another one by now
                return False
            raise
        return True

    async def _patch(self, pod: PodTokens, issued: tuple[IssuedToken, ...], secret_uid: str) -> str:
        path = SECRETS.path(pod.super_namespace, pod.secret_name)
        await self._send(pod, "PATCH", path, secret_patch(pod, issued, secret_uid))
        return secret_uid

    async def _send(self, pod: PodTokens, method: str, path: str, body: Object) -> Object:
        """Write to the super cluster. Raises NotIssuedError if the namespace is not this tenant's."""
        if not self.is_served():
            # Its API server kept an answer back. Another tenant may have its key and its namespaces by now.
            raise NotIssuedError(NOT_SYNCED, RenewalFailure.NAMESPACE_NOT_OWNED)
        if not self.owns(pod.super_namespace):
            message = f"namespace {pod.namespace} is not in the super cluster"
            raise NotIssuedError(message, RenewalFailure.NAMESPACE_NOT_OWNED)
        content_type = _MERGE_PATCH if method == "PATCH" else "application/json"
        encoded = msgspec.json.encode(body)
        charge = self.may_write(pod.super_namespace, pod.secret_name, len(encoded))
        if charge is None:
            message = "this tenant has written too many tokens to the super cluster, and these wait"
            raise NotIssuedError(message, RenewalFailure.WRITE_RATE)
        try:
            answer = await self.super_client.request(method, path, {}, encoded, content_type=content_type)
        except ApiError as error:
            # With another code it may have been written.
            if error.status.code < 500:
                charge.give_back()
            raise
        return decoded(_OBJECT, answer)


class _Repeats:
    """Sends the TokenRequests of one pod, and again what an API server refuses that cannot answer now."""

    def __init__(self) -> None:
        self._repeats = 0

    async def request(self, client: Requester, path: str, body: bytes) -> bytes:
        """The answer. Raises ApiError and UnreachableError. A token that no pod has received does no harm."""
        while True:
            try:
                return await client.request("POST", path, {}, body, limit_bytes=MAX_RESPONSE_BYTES)
            except ApiError as error:
                is_passing = error.status.code == 429 or error.status.code >= 500
                if not is_passing or self._repeats == MAX_REPEATS:
                    raise
            self._repeats += 1
            await asyncio.sleep(backoff_s(self._repeats, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))
