# SPDX-License-Identifier: Apache-2.0
"""Decides AdmissionReviews of pods (admission.k8s.io/v1).

A pod of class CLUSTER gets its resolver in its spec, by the same decision as on a node with NRI. All
others are admitted unchanged: their node's kubelet computes the same for them. So a second review of
a pod changes nothing: its policy is None by then.
"""

import base64
from dataclasses import replace
from typing import Any

import msgspec

from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import PODS, Named, ObjectMeta
from dns_webhook.patch import left_out, patch
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import ClusterState
from dnsconfig.resolve.decision import NodeDns, ResolverDecision, decide
from dnsconfig.resolve.resolver import DnsClass
from dnsconfig.resolve.waiting import PodWaiting, WaitReason

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"

# Only a change of the pod helps. All other reasons may pass, so that a retry helps: also for a
# namespace that was created a moment before its first pod.
_PERMANENT = frozenset({WaitReason.INVALID_NETWORK_NAME, WaitReason.TOO_LARGE, WaitReason.INVALID_OPTION})
_INVALID, _UNAVAILABLE = 422, 503
_REASONS = {_INVALID: "Invalid", _UNAVAILABLE: "ServiceUnavailable"}

# RecursionError: msgspec decodes nested JSON no deeper than the interpreter's stack.
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# An apiserver cuts warnings at 4096 characters in all (apiserver, pkg/warning, 1.34).
_MAX_WARNING = 256


class ReviewError(ValueError):
    """The body is not a review that this webhook can decide."""


class _ReviewStruct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Kind(_ReviewStruct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _AdmissionRequest(_ReviewStruct, frozen=True):
    uid: str
    resource: _Kind = _Kind()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(_ReviewStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: _AdmissionRequest | None = None


class Review(msgspec.Struct, frozen=True):
    """`pod` is None in a review of another kind of object.

    `too_large` is why a pod was not decoded: only its name is known then.
    """

    uid: str
    pod: PodObject | None = None
    too_large: str = ""


def decode_review(body: bytes) -> Review:
    """Decode a review. Raises ReviewError for other versions, and for a pod that is not decodable."""
    try:
        found = msgspec.json.decode(body, type=_Review)
    except _UNDECODABLE as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from None
    if (found.api_version, found.kind) != (API_VERSION, KIND):
        received = f"{found.api_version} {found.kind}"[:80]
        raise ReviewError(f"expected an {API_VERSION} {KIND}, got {received!r}")
    request = found.request
    if request is None or not request.uid:
        raise ReviewError("the review has no request, or the request no uid")
    resource = request.resource
    is_ours = (resource.group, resource.version, resource.resource) == ("", "v1", "pods")
    if not is_ours or request.sub_resource or request.operation != "CREATE":
        return Review(request.uid)
    excess = limits_of(PODS).excess(request.object)
    try:
        if excess is not None:
            name = msgspec.json.decode(request.object, type=Named).metadata.name
            return Review(request.uid, _completed(PodObject(ObjectMeta(name)), request), excess)
        pod = msgspec.json.decode(request.object, type=PodObject)
    except _UNDECODABLE as error:
        raise ReviewError(f"the review's pod cannot be read: {error}") from None
    return Review(request.uid, _completed(pod, request))


def _completed(pod: PodObject, request: _AdmissionRequest) -> PodObject:
    """The pod with what it lacks before it is created: namespace, UID, and with generateName a name."""
    meta: ObjectMeta = pod.metadata
    known = msgspec.structs.replace(
        meta,
        namespace=request.namespace,
        name=meta.name or "unnamed",
        uid=meta.uid or request.uid,
    )
    return msgspec.structs.replace(pod, metadata=known)


def decide_review(review: Review, state: ClusterState, node: NodeDns) -> "ReviewResponse":
    """Decide. `node` is the resolver of all nodes, as the pod is not scheduled yet."""
    if review.pod is not None and review.too_large:
        return ReviewResponse(
            review.uid, _of_too_large(review.pod.metadata.namespace, review.too_large, state)
        )
    decision = None if review.pod is None else decide(review.pod, state, node)
    if decision is None or decision.dns_class is not DnsClass.CLUSTER:
        return ReviewResponse(review.uid)
    if decision.lines is None:
        # Admitted, it would start with the resolver of the super cluster or of the host.
        return ReviewResponse(review.uid, decision)
    return ReviewResponse(review.uid, decision, tuple(patch(decision.lines)))


def _of_too_large(namespace: str, reason: str, state: ClusterState) -> ResolverDecision | None:
    """The denial of a pod that was not decoded; None where its namespace is not a tenant's."""
    denied = ResolverDecision("", DnsClass.CLUSTER, owner=state.owner(namespace))
    if denied.owner is not None:
        return replace(denied, waiting=PodWaiting(WaitReason.TOO_LARGE, reason))
    if namespace in state.namespaces:
        return None
    return replace(
        denied, waiting=PodWaiting(WaitReason.NOT_SYNCED, f"namespace {namespace} is not synced yet")
    )


class ReviewResponse(msgspec.Struct, frozen=True):
    """The response to one review; without a decision the pod is not a tenant's."""

    uid: str
    decision: ResolverDecision | None = None
    patch: tuple[dict[str, Any], ...] = ()

    @property
    def result(self) -> str:
        """For the metric and the log: unchanged, patched or denied."""
        if self.decision is None:
            return "unchanged"
        return "patched" if self.patch else "denied"

    @property
    def message(self) -> str:
        waiting = None if self.decision is None else self.decision.waiting
        return "" if waiting is None or self.patch else waiting.message

    @property
    def left_out(self) -> tuple[str, ...]:
        """Paths of the node's search list that a pod's spec may not have; for operators, not authors."""
        return left_out(self.decision.lines or ()) if self.decision is not None and self.patch else ()

    def body(self) -> bytes:
        """The response as an AdmissionReview."""
        response: dict[str, Any] = {"uid": self.uid, "allowed": self.result != "denied"}
        if self.decision is not None and self.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(self.patch)).decode()
            warnings = [event.message[:_MAX_WARNING] for event in self.decision.events]
            if warnings:
                response["warnings"] = warnings
        elif self.decision is not None:
            waiting = self.decision.waiting
            code = _INVALID if waiting is not None and waiting.reason in _PERMANENT else _UNAVAILABLE
            message = f"no DNS for this pod: {self.message}"
            response["status"] = {"code": code, "reason": _REASONS[code], "message": message}
        return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
