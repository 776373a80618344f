# SPDX-License-Identifier: Apache-2.0
"""Requests by the kubectl beside us: docs/decisions/0063-the-plugin-asks-by-kubectl.md has the reason.

kubectl is a child in our process group: what a person types, as Ctrl-C, ends both.
"""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from kubectl_vc.core.faults import FaultReason, RequestError, RequestFault, fault_of
from kubectl_vc.core.view import Object, TenantView, at, text
from kubectl_vc.port import DEFAULT_NAMESPACE, EVERY_NAMESPACE, WatchEvent

FIELD_MANAGER = "kubectl-vc"
_PROGRAM = "kubectl"
# An object of the API server has at most 1.5 MiB (etcd's limit), and kubectl indents it.
_MAX_OBJECT_BYTES = 16 << 20
_READ_BYTES = 1 << 16
_RETRY_S = 1.0
_RETRIED = (FaultReason.UNREACHABLE, FaultReason.OTHER)
_GROUP_PATH = "/apis/tenancy.x-k8s.io/v1alpha1"


class Kubectl:
    """The API server that these flags of kubectl lead to."""

    def __init__(self, flags: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._flags = list(flags)
        self._environment = None if environment is None else dict(environment)

    def run(self, words: Sequence[str], text_in: str = "") -> str:
        """What kubectl prints. Raises RequestError."""
        try:
            done = subprocess.run(  # noqa: S603 - kubectl of the person's own PATH
                self._command(words),
                input=text_in,
                capture_output=True,
                text=True,
                env=self._environment,
                check=False,
            )
        except OSError as error:
            raise RequestError(_no_kubectl(error)) from None
        if done.returncode:
            raise RequestError(fault_of(done.stderr))
        return done.stdout

    def config(self, words: Sequence[str]) -> str:
        return self.run(["config", *words])

    def get(self, resource: str, name: str, namespace: str = DEFAULT_NAMESPACE) -> Object:
        return self._object(["get", resource, name, *_within(namespace), "--output=json"])

    def list_objects(
        self,
        resource: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        names: Sequence[str] = (),
        selector: Mapping[str, str] | None = None,
    ) -> list[Object]:
        chosen = ",".join(f"{key}={value}" for key, value in (selector or {}).items())
        fields = [f"--field-selector={chosen}"] if chosen else []
        found = self._object(["get", resource, *names, *_within(namespace), *fields, "--output=json"])
        items = at(found, "items")
        return [found] if items is None else [each for each in items if isinstance(each, dict)]  # type: ignore[attr-defined] # a list has items

    def printed(self, resource: str, namespace: str, names: Sequence[str], output: str) -> str:
        return self.run(["get", resource, *names, *_within(namespace), f"--output={output}"])

    def create(
        self, manifest: Object, namespace: str = DEFAULT_NAMESPACE, *, dry_run: bool = False
    ) -> Object:
        words = ["create", "--filename=-", *_within(namespace), f"--field-manager={FIELD_MANAGER}"]
        more = ["--dry-run=server"] if dry_run else []
        return self._object([*words, *more, "--output=json"], json.dumps(manifest))

    def patch(
        self, resource: str, name: str, namespace: str, patch: object, *, is_json_patch: bool = False
    ) -> Object:
        kind = "json" if is_json_patch else "merge"
        words = [
            "patch",
            resource,
            name,
            *_within(namespace),
            f"--type={kind}",
            f"--patch={json.dumps(patch)}",
        ]
        return self._object([*words, f"--field-manager={FIELD_MANAGER}", "--output=json"])

    def delete(self, view: TenantView) -> None:
        # `kubectl delete NAME` has no precondition: it would delete another that has taken the name since.
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": view.uid}}
        path = f"{_GROUP_PATH}/namespaces/{view.namespace}/virtualclusters/{view.name}"
        import tempfile  # it takes longer to load than all of this module

        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(options, file)
            file.flush()
            self.run(["delete", f"--raw={path}", f"--filename={file.name}"])

    def watch(self, resource: str, view: TenantView, until: float) -> Iterator[WatchEvent]:
        words = ["get", resource, view.name, *_within(view.namespace)]
        while time.monotonic() < until:
            try:
                for change in self._watch_once(
                    [*words, "--watch", "--output-watch-events", "--output=json"], until
                ):
                    yield change
                    if change.type == "DELETED":
                        return
            except RequestError as error:
                if error.fault.reason is FaultReason.NOT_FOUND:
                    yield WatchEvent("DELETED", view.value)
                    return
                if error.fault.reason not in _RETRIED:
                    raise
            # The API server ends watches after a while, and may be away a moment. A signal ends the pause.
            time.sleep(max(0.0, min(_RETRY_S, until - time.monotonic())))

    def _watch_once(self, words: Sequence[str], until: float) -> Iterator[WatchEvent]:
        import tempfile  # as above

        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(  # noqa: S603 - as above
                    self._command(words), stdout=subprocess.PIPE, stderr=errors, env=self._environment
                )
            except OSError as error:
                raise RequestError(_no_kubectl(error)) from None
            try:
                assert process.stdout is not None  # noqa: S101 - for the type checker
                yield from _documents(process.stdout.fileno(), until)
                if time.monotonic() < until and process.wait():
                    errors.seek(0)
                    raise RequestError(fault_of(errors.read().decode(errors="replace")))
            finally:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()

    def _object(self, words: Sequence[str], text_in: str = "") -> Object:
        printed = self.run(words, text_in)
        try:
            found = json.loads(printed)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RequestError(RequestFault(FaultReason.OTHER, f"kubectl {words[0]} printed no JSON object"))
        return found

    def _command(self, words: Sequence[str]) -> list[str]:
        # Flags last: `kubectl config` and others want their verb first.
        return [_PROGRAM, *words, *self._flags]


def _documents(descriptor: int, until: float) -> Iterator[WatchEvent]:
    """The events that kubectl prints, one JSON document after the other, until the pipe or the time ends."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            read = os.read(descriptor, _READ_BYTES)
            if not read:
                return
            pending += read
            while (end := _document_end(pending)) > 0:
                value = json.loads(pending[:end])
                pending = pending[end:]
                found = at(value, "object")
                if isinstance(found, dict):
                    yield WatchEvent(text(value, "type"), found)
            if len(pending) > _MAX_OBJECT_BYTES:
                raise RequestError(
                    RequestFault(FaultReason.OTHER, "kubectl printed an object that is too large")
                )


def _document_end(printed: bytes) -> int:
    """Of the first document; 0 while it is not whole. kubectl 1.34 prints each on a line, and indents lists
    and single objects, in which no other line is a brace alone."""
    if printed.startswith(b"{\n"):
        return printed.find(b"\n}\n") + 3 if b"\n}\n" in printed else 0
    return printed.find(b"\n") + 1


def _within(namespace: str) -> list[str]:
    if namespace == EVERY_NAMESPACE:
        return ["--all-namespaces"]
    return [f"--namespace={namespace}"] if namespace else []


def _no_kubectl(error: OSError) -> RequestFault:
    return RequestFault(FaultReason.NO_KUBECTL, f"{_PROGRAM} cannot be started ({error.strerror})")
