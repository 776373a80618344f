# SPDX-License-Identifier: Apache-2.0
"""Rules of kubeproxy-ext: as the text of `kubeproxy-ext render`, and as values."""

import io
import json
from dataclasses import dataclass

from kubeproxy_ext import render
from kubeproxy_ext.compute.guest_view import GuestRulesResult, GuestView
from ruleset.document import Document, parse
from ruleset.model import Family, GuestRules
from ruleset.names import Backend
from tests.cases.services.case_file import ApiState


class SubjectError(Exception):
    """kubeproxy-ext refused its input."""


@dataclass(frozen=True, slots=True)
class RenderedGuest:
    """The guest that rules are rendered for."""

    pod: str
    node: str
    zone: str | None = None
    tenant: str | None = None
    networks: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()

    @property
    def family(self) -> Family:
        return Family.IPV6 if ":" in self.pod else Family.IPV4

    def view(self) -> GuestView:
        return GuestView(
            tenant=self.tenant,
            networks=self.networks,
            pod_ips=(self.pod,),
            node=self.node,
            zone=self.zone,
            service_cidrs=self.service_cidrs,
            family=self.family,
        )

    def arguments(self, backend: Backend) -> list[str]:
        """Of `kubeproxy-ext render`, with the objects on standard input."""
        found = ["--objects", "-", "--node", self.node, "--pod-ip", self.pod]
        found += ["--family", self.family.value, "--format", backend.value]
        found += ["--tenant", self.tenant] if self.tenant is not None else []
        found += ["--zone", self.zone] if self.zone is not None else []
        for network in self.networks:
            found += ["--network", network]
        for cidr in self.service_cidrs:
            found += ["--service-cidr", cidr]
        return found


def objects_list(state: ApiState, node: str) -> bytes:
    """A v1 List, as `kubectl get -o json` prints it."""
    items = state.objects(node)
    return json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}).encode()


def text_for(data: bytes, guest: RenderedGuest, backend: Backend) -> str:
    """The text that `kubeproxy-ext render` prints. Raises SubjectError."""
    printed, problems = io.StringIO(), io.StringIO()
    try:
        code = render.main(guest.arguments(backend), io.BytesIO(data), printed, problems)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    if code != 0:
        raise SubjectError(f"kubeproxy-ext render: exit code {code}: {problems.getvalue().strip()}")
    return printed.getvalue()


def document_for(data: bytes, guest: RenderedGuest, backend: Backend) -> Document:
    return parse(text_for(data, guest, backend), guest.family, backend)


def rules_for(data: bytes, guest: RenderedGuest) -> GuestRules:
    return result_for(data, guest).rules


def result_for(data: bytes, guest: RenderedGuest) -> GuestRulesResult:
    """The model. Raises SubjectError."""
    try:
        return render.read_state(data).result_for(guest.view())
    except (render.UnusableInputError, ValueError) as problem:
        raise SubjectError(f"the model: {problem}") from problem
