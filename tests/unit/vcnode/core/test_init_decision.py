# SPDX-License-Identifier: Apache-2.0
import datetime as dt
from typing import Any

import pytest

from devkit.pki import Authority
from vcnode.core import init_decision, init_plan
from vcnode.core.init_decision import (
    Done,
    FileAction,
    FileDecision,
    FileRequest,
    FoundContent,
    PairDecision,
    decide_file,
    decide_new_file,
    decide_pair,
    next_steps,
)
from vcnode.core.init_plan import NodeDaemon, NodeSettings
from vcnode.core.node_certificates import KeyPair
from vcnode.terminal import ToolError

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
SPAN: dict[str, Any] = {"not_before": NOW - dt.timedelta(days=1), "not_after": NOW + dt.timedelta(days=300)}
END = SPAN["not_after"]
LATER = END + dt.timedelta(days=60)
AUTHORITY = Authority.create("clients", **SPAN)
ISSUER = AUTHORITY.certificate
(SPEC,) = NodeSettings("node-1", "10.0.0.11", "https://host", (NodeDaemon.DNSCONFIG,)).certificates()

PATH = "/etc/vcnode/dnsconfig.yaml"
OURS, NEWER, EDITED = (
    init_plan.marked("a: 1\n"),
    init_plan.marked("a: 2\n"),
    init_plan.marked("a: 1\n") + "b: 1\n",
)


def pair(name: str = SPEC.common_name, not_after: dt.datetime = END) -> KeyPair:
    leaf = AUTHORITY.issue(
        name,
        organization=SPEC.organization,
        usages=("client",),
        not_before=SPAN["not_before"],
        not_after=not_after,
    )
    return KeyPair(leaf.cert_pem, leaf.key_pem)


FOUND, LONGER, OTHER, ENDED = pair(), pair(not_after=LATER), pair("other"), pair(not_after=NOW)


@pytest.mark.parametrize(
    ("found", "force", "expected"),
    [
        (None, False, FileDecision(FileAction.CREATE, PATH)),
        (FoundContent(NEWER.encode()), False, FileDecision(FileAction.KEEP, PATH)),
        (
            FoundContent(NEWER.encode(), is_as_asked=False),
            False,
            FileDecision(FileAction.REPLACE, PATH, "its owner or mode was different"),
        ),
        (
            FoundContent(OURS.encode()),
            False,
            FileDecision(FileAction.REPLACE, PATH, "its content was different"),
        ),
        (FoundContent(EDITED.encode()), False, FileDecision(FileAction.KEEP, PATH, "it has been edited")),
        (FoundContent(b"\xff"), False, FileDecision(FileAction.KEEP, PATH, "it has been edited")),
        (
            FoundContent(EDITED.encode()),
            True,
            FileDecision(FileAction.REPLACE, PATH, "its content was different"),
        ),
    ],
)
def test_an_edited_file_stays(found: FoundContent | None, force: bool, expected: FileDecision) -> None:
    request = FileRequest(PATH, NEWER.encode(), is_editable=True)
    assert decide_file(request, found, force=force) == expected


def test_the_packages_own_file_is_replaced() -> None:
    """Each package ships a configuration without a key: without an edit it need not stay."""
    stub = b"apiVersion: vcnode.io/v1alpha1\nkind: DnsConfigConfiguration\n"
    request = FileRequest(PATH, NEWER.encode(), is_editable=True, shipped=stub)
    replaced = FileDecision(FileAction.REPLACE, PATH, "its content was different")
    assert decide_file(request, FoundContent(stub), force=False) == replaced
    edited = FoundContent(stub + b"nodeName: mine\n")
    assert decide_file(request, edited, force=False).action is FileAction.KEEP


def test_other_files_are_replaced_whatever_they_have() -> None:
    found = FoundContent(b"another authority")
    decision = decide_file(FileRequest(PATH, b"x"), found, force=False)
    assert decision == FileDecision(FileAction.REPLACE, PATH, "its content was different")


def test_ours_is_written_beside_an_edited_file_once() -> None:
    request = FileRequest(PATH, NEWER.encode(), is_editable=True)
    assert decide_new_file(request, None).action is FileAction.CREATE
    assert decide_new_file(request, FoundContent(OURS.encode())).action is FileAction.REPLACE
    assert decide_new_file(request, FoundContent(NEWER.encode())) == FileDecision(
        FileAction.KEEP, f"{PATH}.new"
    )


@pytest.mark.parametrize(
    ("found", "given", "renew", "expected"),
    [
        (None, None, False, PairDecision(FileAction.CREATE)),
        (FOUND, None, False, PairDecision(FileAction.KEEP, "", None, END)),
        (FOUND, None, True, PairDecision(FileAction.REPLACE, "--renew")),
        (ENDED, None, False, PairDecision(FileAction.REPLACE, "it expired on 2027-03-01")),
        (
            OTHER,
            None,
            True,
            PairDecision(
                FileAction.REPLACE,
                OTHER_REASON := (
                    "its subject is CN=other,O=vcnode:dnsconfigs, not CN=vcnode:dnsconfig:node-1"
                ),
            ),
        ),
        (None, FOUND, False, PairDecision(FileAction.CREATE, "", FOUND, END)),
        (FOUND, FOUND, True, PairDecision(FileAction.KEEP, "", None, END)),
        (FOUND, LONGER, False, PairDecision(FileAction.REPLACE, "a later one was given", LONGER, LATER)),
        (LONGER, FOUND, False, PairDecision(FileAction.KEEP, "a given one expires no later", None, LATER)),
        (LONGER, FOUND, True, PairDecision(FileAction.REPLACE, "a later one was given", FOUND, END)),
        (ENDED, FOUND, False, PairDecision(FileAction.REPLACE, "it expired on 2027-03-01", FOUND, END)),
        (OTHER, FOUND, True, PairDecision(FileAction.REPLACE, OTHER_REASON, FOUND, END)),
    ],
)
def test_a_valid_certificate_stays(
    found: KeyPair | None, given: KeyPair | None, renew: bool, expected: PairDecision
) -> None:
    assert decide_pair(found, given, SPEC, ISSUER, NOW, renew=renew) == expected


@pytest.mark.parametrize("given", [None, FOUND])
def test_another_certificate_is_replaced_only_on_demand(given: KeyPair | None) -> None:
    with pytest.raises(ToolError, match=r"client.crt: its subject is CN=other.*; replace it with --renew"):
        decide_pair(OTHER, given, SPEC, ISSUER, NOW, renew=False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (OTHER, "dnsconfig-client: its subject is CN=other"),
        (ENDED, "dnsconfig-client: it expired on 2027-03-01"),
        (KeyPair(b"", b""), "dnsconfig-client: it has no readable PEM certificate"),
    ],
)
def test_a_bundle_with_another_certificate_is_refused(given: KeyPair, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        decide_pair(None, given, SPEC, None, NOW, renew=True)


def test_the_report_has_what_was_written() -> None:
    done = [
        Done("/a", FileAction.CREATE, "until 2028-03-01 (in 365 days)"),
        Done("/bb", FileAction.KEEP),
        Done("/c", FileAction.KEEP, "it has been edited"),
        Done("/d", FileAction.REPLACE),
    ]
    assert init_decision.report(done, is_dry_run=False) == [
        "created    /a  until 2028-03-01 (in 365 days)",
        "unchanged  /c  it has been edited",
        "replaced   /d",
        "files written: 2, unchanged: 2",
    ]
    assert init_decision.report(done, is_dry_run=True)[-1] == (
        "files would be written (--dry-run): 2, unchanged: 2"
    )
    assert init_decision.report(done[1:2], is_dry_run=False) == [
        "nothing to do: 1 files are as they should be"
    ]


def test_the_document_has_every_file() -> None:
    done = [Done("/a", FileAction.CREATE, "until 2028-03-01"), Done("/b", FileAction.KEEP)]
    assert init_decision.as_json(done, ["vcnode doctor"], ["a note"], is_dry_run=True) == {
        "isDryRun": True,
        "files": [
            {"path": "/a", "action": "created", "reason": "until 2028-03-01"},
            {"path": "/b", "action": "unchanged", "reason": ""},
        ],
        "notes": ["a note"],
        "nextSteps": ["vcnode doctor"],
    }


def test_next_steps_name_the_authority_that_tenants_need() -> None:
    daemons = (NodeDaemon.VN_AGENT, NodeDaemon.DNSCONFIG)
    steps = next_steps(
        daemons, rights="/etc/vcnode/rbac", serving_authority="ca/serving-ca.crt", has_init_system=True
    )
    assert list(steps) == [
        "kubectl apply -f /etc/vcnode/rbac   (as an administrator of the super cluster)",
        "systemctl enable --now vn-agent dnsconfig",
        "vcnode doctor",
        "each tenant's kube-apiserver: --kubelet-certificate-authority=ca/serving-ca.crt",
        "vcnode tenant add KEY --ca FILE --client-cert FILE   (each tenant)",
    ]
    steps = next_steps(
        daemons, rights="", serving_authority=None, has_init_system=True, virtual_clusters=True
    )
    assert list(steps) == ["systemctl enable --now vn-agent dnsconfig", "vcnode doctor"]
