# SPDX-License-Identifier: Apache-2.0
"""The storage of a fake API server: objects of any kind, one revision for all, and a history.

It follows etcd and k8s.io/apiserver where clients can observe it. Each write makes one revision, a delete
too. All pages of a list are of one revision. A watch reports an object that leaves its selector as deleted.
Compacted revisions are answered with 410.
"""

import bisect
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from daemonkit.kube.resources import Key, Resource

Object = dict[str, Any]

# The fields that the kinds we use can be selected by; a real server refuses others as well.
_FIELDS = ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase", "type")


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(Exception):
    """What a client is answered with: a meta/v1 Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        cause: str = "",
        retry_after_s: int = 0,
        kind: str = "",
        name: str = "",
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.retry_after_s = retry_after_s
        details: Object = {"name": name, "kind": kind} if kind else {}
        if cause:
            details["causes"] = [{"reason": cause, "message": message}]
        if retry_after_s:
            details["retryAfterSeconds"] = retry_after_s
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }


def copied(value: Object) -> Object:
    """A copy of a JSON object; ten times as fast as `deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(value), type=Object)


def not_found(resource: Resource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', kind=resource.plural, name=name)


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> StatusError:
    kind = f"{resource}/{subresource}" if subresource else str(resource)
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, kind=kind, name=name)


def invalid(resource: Resource, name: str, why: str) -> StatusError:
    message = f'{resource} "{name}" is invalid: {why}'
    return StatusError(422, "Invalid", message, kind=resource.plural, name=name)


def gone(message: str = "too old resource version") -> StatusError:
    return StatusError(410, "Expired", message)


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of one kind that match a namespace and all selectors."""

    resource: Resource
    namespace: str = ""
    labels: tuple[tuple[str, str, str], ...] = ()
    fields: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def parse(
        cls, resource: Resource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> "Selection":
        """Selectors as in a query. Raises StatusError.

        `a=b,c!=d`; `e` and `!f` for labels that are there and that are not; `g in (h,i)` and
        `g notin (h,i)`.
        """
        wanted = tuple(_requirements(fields))
        for name, _, _ in wanted:
            if name not in _FIELDS:
                raise StatusError(400, "BadRequest", f"field label not supported: {name}")
        return cls(resource, namespace, tuple(_requirements(labels)), wanted)

    @property
    def only_name(self) -> str:
        """The name that the fields ask for exactly: what authorization takes as the name."""
        exact = [value for name, is_, value in self.fields if (name, is_) == _EXACT_NAME]
        return exact[0] if exact else ""

    def matches(self, value: Object | None) -> bool:
        if value is None:
            return False
        metadata = value["metadata"]
        if self.namespace and metadata.get("namespace", "") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        return all(_holds(labels.get(name), op, want) for name, op, want in self.labels) and all(
            _holds(_field(value, name), op, want) for name, op, want in self.fields
        )


_EXACT_NAME = ("metadata.name", "=")
_IN_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class _Write:
    revision: int
    resource: Resource
    key: Key
    before: Object | None
    after: Object | None


class Storage:
    """All objects of one server. Values that go in and out are copies."""

    def __init__(self, *, max_history: int = 10_000) -> None:
        self.revision = 1
        self.compacted = 1
        self.on_write: list[Callable[[Resource | None], None]] = []
        """Called after each write with its resource, and with None when all watches should look."""
        self._objects: dict[Resource, dict[Key, Object]] = {}
        self._history: list[_Write] = []
        self._max_history = max_history
        self._written: dict[Resource, int] = {}
        self._in_namespace: Counter[str] = Counter()
        # Resources whose CustomResourceDefinition is not installed.
        self.absent: set[Resource] = set()

    def create(self, resource: Resource, value: Object) -> Object:
        """Add an object. Raises StatusError 409 if its name is taken, 422 without a name."""
        value = copied(value)
        key = self._key(resource, value)
        if key in self._of(resource):
            message = f'{resource} "{key[1]}" already exists'
            raise StatusError(409, "AlreadyExists", message, kind=resource.plural, name=key[1])
        value["metadata"]["uid"] = str(uuid.uuid4())
        return self._write(resource, key, value)

    def replace(self, resource: Resource, value: Object) -> Object:
        """Put another state in place. Raises StatusError 404, or 409 on an old resourceVersion."""
        value = copied(value)
        key = self._key(resource, value)
        old = self.get(resource, *key)
        metadata = value["metadata"]
        if (
            metadata.get("resourceVersion", old["metadata"]["resourceVersion"])
            != (old["metadata"]["resourceVersion"])
        ):
            raise conflict(resource, key[1], MODIFIED)
        metadata["uid"] = old["metadata"]["uid"]
        return self._write(resource, key, value)

    def put(self, resource: Resource, value: Object) -> Object:
        """Create or replace, whatever is there."""
        value = copied(value)
        value["metadata"].pop("resourceVersion", None)
        exists = self._key(resource, value) in self._of(resource)
        return self.replace(resource, value) if exists else self.create(resource, value)

    def restore(self, resource: Resource, value: Object) -> Object:
        """Put an object back as a backup has it, with its UID."""
        value = copied(value)
        return self._write(resource, self._key(resource, value), value)

    def delete(self, resource: Resource, namespace: str, name: str) -> Object:
        """Remove an object and return how it was. Raises StatusError 404."""
        self.get(resource, namespace, name)
        return self._write(resource, (namespace, name), None)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object. Raises StatusError 404."""
        found = self._of(resource).get((namespace, name))
        if found is None:
            raise not_found(resource, name)
        return copied(found)

    def peek(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object to look at, if it is there: no copy."""
        return self._of(resource).get((namespace, name))

    def has(self, resource: Resource, namespace: str, name: str) -> bool:
        return (namespace, name) in self._of(resource)

    def select(self, selection: Selection, revision: int | None = None) -> list[Object]:
        """The objects that match, as of `revision`, in order of their keys. Raises 404 and 410."""
        if selection.resource in self.absent:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        objects = dict(self._of(selection.resource))
        if revision is not None and revision != self.revision:
            self._check_kept(revision)
            for write in reversed(self._history):
                if write.revision <= revision:
                    break
                if write.resource == selection.resource:
                    if write.before is None:
                        objects.pop(write.key, None)
                    else:
                        objects[write.key] = write.before
        return [objects[key] for key in sorted(objects) if selection.matches(objects[key])]

    def events(self, selection: Selection, since: int) -> list[tuple[str, Object]]:
        """What a watch of `selection` sees after `since`: types and objects. Raises 410."""
        self._check_kept(since)
        start = bisect.bisect_right(self._history, since, key=lambda write: write.revision)
        found: list[tuple[str, Object]] = []
        for write in self._history[start:]:
            if write.resource != selection.resource:
                continue
            was, is_ = selection.matches(write.before), selection.matches(write.after)
            if is_ and write.after is not None:
                found.append(("MODIFIED" if was else "ADDED", write.after))
            elif was and write.before is not None:
                found.append(("DELETED", _at(write.before, write.revision)))
        return found

    def check_seen(self, revision: int) -> None:
        """Raise StatusError 504 for a future revision (NewTooLargeResourceVersionError)."""
        if revision > self.revision:
            message = f"Too large resource version: {revision}, current: {self.revision}"
            raise StatusError(504, "Timeout", message, cause="ResourceVersionTooLarge", retry_after_s=1)

    def compact(self, revision: int | None = None) -> None:
        """Forget the history up to `revision`, or all of it."""
        self.compacted = min(self.revision, revision if revision is not None else self.revision)
        self._history = [w for w in self._history if w.revision > self.compacted]

    def bump(self, revisions: int = 1) -> None:
        """Let the revision grow without a change to any object, as leases and events do."""
        self.revision += revisions
        self._notify(None)

    def roll_back(self, revision: int) -> None:
        """Go back in time, as a restored backup of etcd does."""
        self._check_kept(revision)
        while self._history and self._history[-1].revision > revision:
            write = self._history.pop()
            self._set(write.resource, write.key, write.before)
        self.revision = revision

    def written(self, resource: Resource) -> int:
        """The revision of the last write to a resource."""
        return self._written.get(resource, 0)

    def is_empty(self, namespace: str) -> bool:
        """Whether no object is in a namespace."""
        return not self._in_namespace[namespace]

    def contents(self, namespace: str) -> list[tuple[Resource, str]]:
        """The resources and names of the objects in a namespace."""
        return [
            (resource, key[1])
            for resource, objects in self._objects.items()
            if resource.is_namespaced
            for key in objects
            if key[0] == namespace
        ]

    def _write(self, resource: Resource, key: Key, value: Object | None) -> Object:
        before = self._of(resource).get(key)
        self.revision += 1
        if value is not None:
            value["metadata"]["resourceVersion"] = str(self.revision)
        self._set(resource, key, value)
        self._history.append(_Write(self.revision, resource, key, before, value))
        self._written[resource] = self.revision
        is_full = len(self._history) > self._max_history
        if is_full:
            self.compact(self._history[self._max_history // 2].revision)
        # A watch that has no part in this write must not be left behind the compacted revision.
        self._notify(None if is_full else resource)
        final = value if value is not None else _at(before or {}, self.revision)
        return copied(final)

    def _set(self, resource: Resource, key: Key, value: Object | None) -> None:
        objects = self._of(resource)
        if value is None:
            if objects.pop(key, None) is not None:
                self._in_namespace[key[0]] -= 1
        else:
            self._in_namespace[key[0]] += key not in objects
            objects[key] = value

    def _notify(self, resource: Resource | None) -> None:
        for notify in self.on_write:
            notify(resource)

    def _of(self, resource: Resource) -> dict[Key, Object]:
        return self._objects.setdefault(resource, {})

    def _key(self, resource: Resource, value: Object) -> Key:
        metadata = value.setdefault("metadata", {})
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        if not name or bool(namespace) != resource.is_namespaced:
            raise StatusError(422, "Invalid", "metadata.name or metadata.namespace is wrong")
        return namespace, name

    def _check_kept(self, revision: int) -> None:
        if revision < self.compacted:
            raise gone(f"too old resource version: {revision} ({self.compacted})")


def _at(value: Object, revision: int) -> Object:
    return value | {"metadata": value["metadata"] | {"resourceVersion": str(revision)}}


def _requirements(text: str) -> Iterator[tuple[str, str, str]]:
    # A comma within parentheses is between the values of a set.
    for part in filter(None, (part.strip() for part in re.split(r",(?![^(]{0,256}\))", text))):
        in_set = _IN_SET.fullmatch(part)
        if in_set is not None:
            name, operation, values = in_set.groups()
            yield name, operation, ",".join(value.strip() for value in values.split(","))
            continue
        for sign, meaning in (("!=", "!="), ("==", "="), ("=", "=")):
            name, found, value = part.partition(sign)
            if found:
                yield name.strip(), meaning, value.strip()
                break
        else:
            yield part.removeprefix("!").strip(), "absent" if part.startswith("!") else "exists", ""


def _holds(found: str | None, operation: str, wanted: str) -> bool:
    match operation:
        case "exists" | "absent":
            return (found is not None) == (operation == "exists")
        case "in" | "notin":
            return (found is not None and found in wanted.split(",")) == (operation == "in")
        case _:
            return (found == wanted) == (operation == "=")


def _field(value: Object, path: str) -> str:
    here: Any = value
    for part in path.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return "" if here is None else str(here)
