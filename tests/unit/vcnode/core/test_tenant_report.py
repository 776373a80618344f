# SPDX-License-Identifier: Apache-2.0
import datetime as dt

from devkit.pki import Authority
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from vcnode.core import certificates, tenant_report
from vcnode.core.tenant_report import Found

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
CA = Authority.create(
    "kubernetes", not_before=NOW - dt.timedelta(days=1), not_after=NOW + dt.timedelta(days=30)
).der
A, B = "a" * 64, "b" * 64
ACME = Tenant("acme", (CA,), {A: Role.APISERVER, B: Role.METRICS})


def test_listing_has_a_line_for_each_file() -> None:
    found: Found = {"acme.yaml": ACME, "bad.yaml": Bad("kind: must be Tenant"), "s.yaml": Tenant("s", (), {})}
    wrong = tenant_report.problems(found)
    assert wrong == {"bad.yaml": "kind: must be Tenant"}
    assert tenant_report.listing(found, wrong, NOW) == [
        "TENANT  FILE       CLIENTS                 AUTHORITY UNTIL          STATE",
        "acme    acme.yaml  1 apiserver, 1 metrics  2027-03-31 (in 30 days)  ok",
        "-       bad.yaml   -                       -                        BAD: kind: must be Tenant",
        "s       s.yaml     none                    -                        ok",
    ]


def test_claim_of_two_tenants_is_a_problem_of_both() -> None:
    found = {"1.yaml": ACME, "2.yaml": Tenant("acme", (), {})}
    assert set(tenant_report.problems(found)) == {"1.yaml", "2.yaml"}


def test_tenant_is_shown_in_full() -> None:
    assert tenant_report.showing("t/acme.yaml", ACME, None, {A: "CN=x"}, NOW) == [
        "tenant acme",
        "  file            t/acme.yaml",
        "  cluster domain  cluster.local",
        "  authority       CN=kubernetes, until 2027-03-31 (in 30 days)",
        f"                  SPKI {certificates.describe(CA).spki}",
        "  client          apiserver, CN=x",
        f"                  SPKI {A}",
        "  client          metrics, no note in the file",
        f"                  SPKI {B}",
    ]


def test_empty_and_contested_tenant_is_shown() -> None:
    assert tenant_report.showing("s.yaml", Tenant("s", (), {}), "is claimed by two", {}, NOW)[3:] == [
        "  authority       none: clients are recognised by their SPIFFE name alone",
        "  client          none",
        "  BAD             is claimed by two",
    ]


def test_bad_file_is_shown_with_all_its_errors() -> None:
    assert tenant_report.showing("bad.yaml", Bad("kind: wrong; spec: wrong"), "-", {}, NOW) == [
        "bad.yaml: BAD; vn-agent keeps its last good state",
        "  kind: wrong",
        "  spec: wrong",
    ]


def test_documents_of_list_and_show() -> None:
    clients = [{"spkiSHA256": A, "role": "apiserver"}, {"spkiSHA256": B, "role": "metrics"}]
    summary = {
        "file": "acme.yaml",
        "tenant": "acme",
        "problem": None,
        "clusterDomain": "cluster.local",
        "clients": clients,
    }
    bad = {"file": "bad.yaml", "tenant": None, "problem": "wrong"}
    found: Found = {"acme.yaml": ACME, "bad.yaml": Bad("wrong")}
    assert tenant_report.list_document(found, {"bad.yaml": "wrong"}) == {"items": [summary, bad]}
    assert tenant_report.show_document("bad.yaml", Bad("wrong"), "wrong", {}) == bad
    assert tenant_report.show_document("acme.yaml", ACME, None, {A: "CN=x"}) == summary | {
        "authorities": [
            {
                "subject": "CN=kubernetes",
                "expires": "2027-03-31T12:00:00+00:00",
                "spkiSHA256": certificates.describe(CA).spki,
            }
        ],
        "clients": [{**clients[0], "note": "CN=x"}, {**clients[1], "note": ""}],
    }
