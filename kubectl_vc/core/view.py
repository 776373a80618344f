# SPDX-License-Identifier: Apache-2.0
"""What the plugin reads of a VirtualCluster, as JSON has it. A field of another type counts as absent."""

import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

from tenancy import keys

Object = dict[str, Any]
API_VERSION = f"{keys.TENANCY_PREFIX}v1alpha1"
# kubectl's names of resources, with their group: other groups may have resources of these names too.
VIRTUAL_CLUSTERS = f"virtualclusters.{keys.TENANCY_PREFIX.rstrip('/')}"
CLUSTER_VERSIONS = f"clusterversions.{keys.TENANCY_PREFIX.rstrip('/')}"
READY = "Ready"
UP_TO_DATE = "UpToDate"
SLEEPING = "Sleeping"
# Of a backup or a restore in the status.
COMPLETED = "Completed"


class ConditionView(NamedTuple):
    """One condition with a type. The syncer's have none, and are not shown."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""

    @property
    def is_true(self) -> bool:
        return self.status == "True"

    def line(self) -> str:
        """`Ready False (WorkloadNotReady): StatefulSet ...`."""
        reason = f" ({self.reason})" if self.reason else ""
        message = f": {self.message}" if self.message else ""
        return f"{self.type} {self.status}{reason}{message}"


class TenantView(NamedTuple):
    """One VirtualCluster."""

    value: Object

    @property
    def name(self) -> str:
        return text(self.value, "metadata", "name")

    @property
    def namespace(self) -> str:
        return text(self.value, "metadata", "namespace")

    @property
    def uid(self) -> str:
        return text(self.value, "metadata", "uid")

    @property
    def path(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.namespace}/{self.name}"

    @property
    def phase(self) -> str:
        return text(self.value, "status", "phase")

    @property
    def message(self) -> str:
        """The status' own, which upstream's manager writes too."""
        return text(self.value, "status", "message")

    @property
    def root_namespace(self) -> str:
        return text(self.value, "status", "clusterNamespace")

    @property
    def desired_version(self) -> str:
        return text(self.value, "spec", "clusterVersionName")

    @property
    def version(self) -> str:
        """The ClusterVersion that is applied; before the first, empty."""
        return text(self.value, "status", "clusterVersion")

    @property
    def size_class(self) -> str:
        return text(self.value, "spec", "class")

    @property
    def is_observed(self) -> bool:
        """Whether the operator's status is of the spec as it is now."""
        generation = number(self.value, "metadata", "generation")
        return 0 < generation <= number(self.value, "status", "observedGeneration")

    @property
    def is_deleting(self) -> bool:
        return bool(text(self.value, "metadata", "deletionTimestamp"))

    @property
    def finalizers(self) -> list[str]:
        """What must be done before its deletion."""
        found = at(self.value, "metadata", "finalizers")
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    @property
    def sleeping_since(self) -> str:
        """When it fell asleep; empty while it is awake."""
        return text(self.value, "status", "sleep", "since") if self.condition(SLEEPING).is_true else ""

    @property
    def conditions(self) -> list[ConditionView]:
        """In the operator's order."""
        return [
            ConditionView(
                text(each, "type"), text(each, "status"), text(each, "reason"), text(each, "message")
            )
            for each in objects(self.value, "status", "conditions")
            if text(each, "type")
        ]

    def condition(self, type_: str) -> ConditionView:
        """That of this type, or one whose status is Unknown."""
        return next((each for each in self.conditions if each.type == type_), ConditionView(type_))


def text(value: object, *path: str) -> str:
    """The text at this path of a JSON value; empty without one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    """The integer at this path; 0 without one."""
    found = at(value, *path)
    return found if isinstance(found, int) else 0


def objects(value: object, *path: str) -> Iterator[Object]:
    """The objects of the list at this path."""
    found = at(value, *path)
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


def at(value: object, *path: str) -> object:
    """The value at this path; None without one."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parsed_time(value: str) -> dt.datetime | None:
    """A time of Kubernetes (RFC 3339); None for any other text."""
    try:
        found = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else None


def printed_time(value: dt.datetime) -> str:
    """As Kubernetes writes it: RFC 3339, UTC, whole seconds."""
    return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
