# SPDX-License-Identifier: Apache-2.0
"""What leaves a node in a bug report has no name of a tenant."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcnode.core import bug_report
from vcnode.core.bug_report import (
    Redaction,
    collect,
    last_lines,
    names_left,
    replace_names,
)

STATUS = {
    "daemon": "kata-bridge",
    "nodeName": "node-1",
    "tenants": {"tenant-1-70b001-test": {"syncState": "synced"}},
    "guests": [
        {
            "id": "6c1f0a37d2b9",
            "pod": "tenant-1-70b001-test-shop/web-0",
            "tenant": "tenant-1-70b001-test",
            "tenantPod": "shop/web-0",
            "networks": ["blue"],
            "state": "current",
        }
    ],
}


def redacted(text: str, document: object = STATUS) -> str:
    redaction = Redaction()
    collect(redaction, document)
    texts = replace_names(redaction, {"log": text})
    assert not names_left(redaction, texts.values())
    return texts["log"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pod web-0 of tenant-1-70b001-test", "pod pod-1 of tenant-1"),
        ("tenant-1-70b001-test-other is new", "name-1 is new"),
        ("WEB-0.", "pod-1."),
        ("shop/web-0: timed out", "namespace-2/pod-1: timed out"),
        ("unlisted/thing: timed out", "namespace-3/object-1: timed out"),
        ('{tenant="tenant-1-70b001-test"} 4', '{tenant="tenant-1"} 4'),
        ("web-0.shop.svc.cluster.local", "pod-1.namespace-2.svc.cluster.local"),
        ("/etc/vcnode/tenants/tenant-1-70b001-test.yaml", "/etc/vcnode/tenants/name-1"),
        ("/etc/vcnode/tenants/initech.yaml is bad; initech", "/etc/vcnode/tenants/name-1 is bad; tenant-2"),
        ("/etc/vcnode/globex.kubeconfig of globex", "/etc/vcnode/name-1 of tenant-2"),
        ("/var/lib/vcnode is read", "/var/lib/vcnode is read"),
        ("node-1: 3/4 ready, application/json", "node-1: 3/4 ready, application/json"),
        ("web-01 is no name", "web-01 is no name"),
    ],
)
def test_names_get_pseudonyms(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_a_name_has_one_pseudonym_in_all_texts() -> None:
    redaction = Redaction()
    collect(redaction, STATUS)
    texts = replace_names(redaction, {"a": "web-0", "b": "blue web-0", "status": json.dumps(STATUS)})
    assert (texts["a"], texts["b"]) == ("pod-1", "network-1 pod-1")
    found = json.loads(texts["status"])
    assert found["guests"][0]["tenantPod"] == "namespace-2/pod-1"
    assert (found["daemon"], found["nodeName"], found["guests"][0]["state"]) == (
        "kata-bridge",
        "node-1",
        "current",
    )


def test_too_many_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without a pseudonym would stay in the report."""
    monkeypatch.setattr(bug_report, "MAX_NAMES", 2)
    redaction = Redaction()
    collect(redaction, {"tenants": ["vc-a", "vc-b", "vc-a"]})
    with pytest.raises(bug_report.TooManyNamesError):
        collect(redaction, {"pod": "web-0"})
    with pytest.raises(bug_report.TooManyNamesError):
        replace_names(redaction, {"log": "shop/web-0: timed out"})


@pytest.mark.parametrize(
    ("most", "expected"), [(12, "one\ntwo\nsix\n"), (11, "two\nsix\n"), (8, "two\nsix\n"), (3, ""), (0, "")]
)
def test_texts_are_cut_between_lines(most: int, expected: str) -> None:
    assert last_lines("one\ntwo\nsix\n", most) == expected
    assert last_lines("x" * 20, most) == ""


LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{1,20}[a-z0-9])", fullmatch=True)
AROUND = st.sampled_from(["", "/", " ", '"', "{", "=", "\n", ": ", "-x", ".yaml", "A", "%2F"])


@given(key=LABELS, pod=LABELS, before=AROUND, after=AROUND)
def test_no_key_of_a_tenant_is_left(key: str, pod: str, before: str, after: str) -> None:
    document = {"guests": [{"tenant": f"vc-{key}", "pod": f"vc-{key}-ns/{pod}"}]}
    text = redacted(f"{before}vc-{key}{after} VC-{key.upper()} {json.dumps(document)}", document)
    assert f"vc-{key}" not in text.lower()


def test_long_texts_take_linear_time() -> None:
    for text in ("a." * 200_000, "-" * 400_000, "://" * 130_000, "a/" * 200_000):
        assert redacted(text)
