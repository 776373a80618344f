# SPDX-License-Identifier: Apache-2.0
"""What every Kubernetes object has, where it is found, and which of two versions is the newer."""

import enum
from dataclasses import dataclass
from typing import Protocol

import msgspec

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for what belongs to the whole cluster."""


class EventReason(enum.StrEnum):
    """Why an Event is posted, in CamelCase. Each daemon has its own as members of a subclass."""


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `metadata` that we use, for callers' own Structs to embed."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Identity(Protocol):
    """The part of `metadata` that identifies an object and its version.

    A caller that holds many objects declares a Struct of these and of what else it uses.
    """

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class KubeObject(Protocol):
    """What a reflector's type has to have."""

    @property
    def metadata(self) -> Identity: ...


class NameOnly(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `metadata` by which an object is known, whatever else is in there."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Named(msgspec.Struct, frozen=True):
    """Any object, when only its identity is wanted; also a bookmark."""

    metadata: NameOnly = NameOnly()


class MetadataOnly(msgspec.Struct, frozen=True):
    """Any object, when only its metadata is wanted."""

    metadata: ObjectMeta = ObjectMeta()


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, frozen=True):
    """One page of a list. Items stay bytes: one that does not decode must not spoil the others."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


# Servers ask for seconds, or some minutes.
MAX_RETRY_AFTER_S = 86_400


class StatusCause(msgspec.Struct, frozen=True):
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0
    causes: list[StatusCause] | None = None


class Status(msgspec.Struct, frozen=True):
    """The answer to what failed (meta/v1 Status), as a body or within a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def retry_after_s(self) -> float:
        """The seconds after which the server asks to be asked again, within bounds.

        JSON's integers have no end: one of 400 digits is no float any more.
        """
        asked = self.details.retry_after_seconds if self.details else 0
        return float(max(0, min(asked, MAX_RETRY_AFTER_S)))

    @property
    def is_version_too_large(self) -> bool:
        """The server has not seen the version that was asked for: it lags, or went back in time.

        apimachinery, NewTooLargeResourceVersionError: a Timeout with this cause.
        """
        causes = self.details.causes if self.details else None
        return any(cause.reason == "ResourceVersionTooLarge" for cause in causes or ())


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object as the API server's paths name it. The core group is empty."""

    group: str
    version: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The path of the collection, or of one object. Names must have been checked before."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods")
SECRETS = Resource("", "v1", "secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
NAMESPACES = Resource("", "v1", "namespaces", is_namespaced=False)
NODES = Resource("", "v1", "nodes", is_namespaced=False)
SERVICES = Resource("", "v1", "services")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
VIRTUAL_CLUSTERS = Resource("tenancy.x-k8s.io", "v1alpha1", "virtualclusters")

EXCLUDING_LABELS = ("service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless")
"""As kube-proxy does, kubeproxy-ext skips objects with such a label, whatever its value."""


def is_excluded(metadata: Identity) -> bool:
    """Whether a Service or an EndpointSlice has one of `EXCLUDING_LABELS`.

    The labels of an undecodable object are unknown: it is not excluded.
    """
    return isinstance(metadata, ObjectMeta) and any(label in metadata.labels for label in EXCLUDING_LABELS)


def is_ordered(version: str) -> bool:
    """Whether a resource version can be compared with another.

    KEP-5504 (Comparable Resource Version): a decimal integer without leading zeros. Any other version,
    as some aggregated servers have it, is opaque: the last to arrive counts as newest.
    """
    return version.isascii() and version.isdigit() and (version[0] != "0" or version == "0")


def is_older(version: str, than: str) -> bool:
    """Whether `version` is known to be older than `than`; False where either is opaque."""
    if not (is_ordered(version) and is_ordered(than)):
        return False
    # By length, then by text: the same order, without turning a hostile length into an integer.
    return (len(version), version) < (len(than), than)
