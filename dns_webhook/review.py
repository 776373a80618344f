# SPDX-License-Identifier: Apache-2.0
"""An AdmissionReview, and the answer to it (admission.k8s.io/v1). Pure.

A pod of class CLUSTER gets its resolver spelled out, by the same decision as on a node with NRI.
All others are let through as they are: what the kubelet of their node makes of them is the same.
That is also what keeps a second look at one pod from changing it: it has policy None by then.
"""

import base64
from dataclasses import replace
from typing import Any

import msgspec

from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import PODS, Named, ObjectMeta
from dns_webhook.patch import left_out, patch
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import World
from dnsconfig.resolve.decision import Decision, Node, decide
from dnsconfig.resolve.resolver import DnsClass
from dnsconfig.resolve.waiting import Cause, Waits

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"

# No wait helps: whoever wrote the pod has to change it. All else passes, and is worth another try; a
# namespace that was made a moment before its first pod, too.
_FOR_GOOD = frozenset({Cause.NAME, Cause.TOO_LARGE, Cause.UNUSABLE})
_INVALID, _UNAVAILABLE = 422, 503
_REASONS = {_INVALID: "Invalid", _UNAVAILABLE: "ServiceUnavailable"}

# The last one is of brackets without end; msgspec decodes no deeper than the interpreter's stack.
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# An apiserver cuts warnings at 4096 characters in all (apiserver, pkg/warning, 1.34).
_MAX_WARNING = 256


class BadReview(ValueError):  # noqa: N818 - the state it tells of
    """What was sent is no review that we know; the text says why."""


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Kind(_Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Request(_Struct, frozen=True):
    uid: str
    resource: _Kind = _Kind()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(_Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class Review(msgspec.Struct, frozen=True):
    """A review that can be answered; `pod` is None where it is of something else.

    Of a pod that is `too_large`, for the reason that stands there, only the name is known.
    """

    uid: str
    pod: PodObject | None = None
    too_large: str = ""


def read(body: bytes) -> Review:
    """Read a review. Raises BadReview for all that is not of v1, and for a pod that does not decode."""
    try:
        found = msgspec.json.decode(body, type=_Review)
    except _UNDECODABLE as error:
        raise BadReview(f"no AdmissionReview: {error}") from None
    if (found.api_version, found.kind) != (API_VERSION, KIND):
        said = f"{found.api_version} {found.kind}"[:80]
        raise BadReview(f"expected an {API_VERSION} {KIND}, got {said!r}")
    request = found.request
    if request is None or not request.uid:
        raise BadReview("the review has no request, or the request no uid")
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
        raise BadReview(f"the review's pod cannot be read: {error}") from None
    return Review(request.uid, _completed(pod, request))


def _completed(pod: PodObject, request: _Request) -> PodObject:
    """The pod with what it has not got yet when it is admitted: namespace, UID, sometimes a name."""
    meta: ObjectMeta = pod.metadata
    known = msgspec.structs.replace(
        meta,
        namespace=request.namespace,
        name=meta.name or "unnamed",
        uid=meta.uid or request.uid,
    )
    return msgspec.structs.replace(pod, metadata=known)


def answer(review: Review, world: World, node: Node) -> "Answer":
    """Decide. `node` is the resolver that all nodes have: which one the pod will be on nobody knows yet."""
    if review.pod is not None and review.too_large:
        return Answer(review.uid, _of_too_large(review.pod.metadata.namespace, review.too_large, world))
    decision = None if review.pod is None else decide(review.pod, world, node)
    if decision is None or decision.dns_class is not DnsClass.CLUSTER:
        return Answer(review.uid)
    if decision.lines is None:
        # Let in, it would be started with the resolver of the super cluster or of the host.
        return Answer(review.uid, decision)
    return Answer(review.uid, decision, tuple(patch(decision.lines)))


def _of_too_large(namespace: str, reason: str, world: World) -> Decision | None:
    """The refusal of a pod that was not decoded, None where it is no tenant's: its namespace tells."""
    refused = Decision("", DnsClass.CLUSTER, owner=world.owner(namespace))
    if refused.owner is not None:
        return replace(refused, waits=Waits(Cause.TOO_LARGE, reason))
    if namespace in world.namespaces:
        return None
    return replace(refused, waits=Waits(Cause.UNHEARD, f"namespace {namespace} is not known yet"))


class Answer(msgspec.Struct, frozen=True):
    """The decision about one review; without a decision the pod is none of ours."""

    uid: str
    decision: Decision | None = None
    patch: tuple[dict[str, Any], ...] = ()

    @property
    def result(self) -> str:
        """For the metric and the log."""
        if self.decision is None:
            return "left"
        return "patched" if self.patch else "refused"

    @property
    def reason(self) -> str:
        waits = None if self.decision is None else self.decision.waits
        return "" if waits is None or self.patch else waits.reason

    @property
    def left_out(self) -> tuple[str, ...]:
        """Of the node's search list, what no pod's spec may have: for the log, as no author can mend it."""
        return left_out(self.decision.lines or ()) if self.decision is not None and self.patch else ()

    def body(self) -> bytes:
        """The answer as an AdmissionReview."""
        response: dict[str, Any] = {"uid": self.uid, "allowed": self.result != "refused"}
        if self.decision is not None and self.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(self.patch)).decode()
            warnings = [event.message[:_MAX_WARNING] for event in self.decision.events]
            if warnings:
                response["warnings"] = warnings
        elif self.decision is not None:
            waits = self.decision.waits
            code = _INVALID if waits is not None and waits.cause in _FOR_GOOD else _UNAVAILABLE
            message = f"no DNS for this pod: {self.reason}"
            response["status"] = {"code": code, "reason": _REASONS[code], "message": message}
        return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
