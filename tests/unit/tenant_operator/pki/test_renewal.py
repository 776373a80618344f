# SPDX-License-Identifier: Apache-2.0
"""When certificates are issued again, what an authority's loss is called, and what the condition reports."""

import datetime as dt
import math
from collections.abc import Mapping

import msgspec
import pytest

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import Condition
from tenant_operator.pki import catalog, issuing, renewal
from tenant_operator.pki.catalog import LeafSpec
from tenant_operator.pki.facts import CertificateFacts, SecretFacts, data_digest, digest_of, facts_of
from tenant_operator.pki.renewal import AuthorityProblem, AuthorityReason, DueReason
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import DAY, KEY, NOW

HOUR = 3600.0
AUTHORITY = CertificateFacts(NOW - HOUR, NOW + 3650 * DAY, "a" * 64, "aa")
OTHER = CertificateFacts(NOW - HOUR, NOW + 3650 * DAY, "b" * 64, "bb")
LEAF = CertificateFacts(NOW - HOUR, NOW + 365 * DAY, "c" * 64, "cc", "aa")
DIGESTS = {"tls.crt": digest_of(b"certificate"), "tls.key": digest_of(b"key")}
ANNOTATIONS = {keys.DATA_DIGEST: data_digest(DIGESTS), keys.SPEC_DIGEST: "spec"}
SECRET = SecretFacts(ANNOTATIONS, DIGESTS, {"tls.crt": LEAF})
REF = Ref("Secret", KEY, "cluster-ca")
SIGNED = (Ref("Secret", KEY, "apiserver-serving"), Ref("Secret", KEY, "admin-kubeconfig"))


def secret(**changes: object) -> SecretFacts:
    return msgspec.structs.replace(SECRET, **changes)


def time_of(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("found", "digest", "authority", "now", "request_", "expected"),
    [
        (SECRET, "spec", AUTHORITY, NOW, "", None),
        (None, "spec", AUTHORITY, NOW, "", DueReason.MISSING),
        (secret(digests=DIGESTS | {"tls.key": "x"}), "spec", AUTHORITY, NOW, "", DueReason.EDITED),
        (secret(digests={}), "spec", AUTHORITY, NOW, "", DueReason.EDITED),
        (secret(annotations={}), "spec", AUTHORITY, NOW, "", DueReason.EDITED),
        (secret(certificates={"tls.crt": None}), "spec", AUTHORITY, NOW, "", DueReason.UNREADABLE),
        (secret(certificates={}), "spec", AUTHORITY, NOW, "", DueReason.UNREADABLE),
        (SECRET, "spec", OTHER, NOW, "", DueReason.AUTHORITY),
        (SECRET, "another", AUTHORITY, NOW, "", DueReason.SPEC),
        (SECRET, "spec", AUTHORITY, NOW, "first", DueReason.REQUESTED),
        (
            secret(annotations=ANNOTATIONS | {keys.ROTATION_TOKEN: "first"}),
            "spec",
            AUTHORITY,
            NOW,
            "first",
            None,
        ),
        (SECRET, "spec", AUTHORITY, NOW + 243 * DAY, "", None),
        (SECRET, "spec", AUTHORITY, NOW + 244 * DAY, "", DueReason.AGE),
        (SECRET, "spec", AUTHORITY, NOW + 400 * DAY, "", DueReason.AGE),
        # Of a clock that is far behind nothing is issued; of one that was ahead, all.
        (SECRET, "spec", AUTHORITY, NOW - 400 * DAY, "", None),
        (
            secret(
                certificates={"tls.crt": CertificateFacts(NOW + DAY, NOW + 366 * DAY, "c" * 64, "cc", "aa")}
            ),
            "spec",
            AUTHORITY,
            NOW,
            "",
            DueReason.NOT_YET_VALID,
        ),
    ],
)
def test_a_leaf_is_due(
    found: SecretFacts | None,
    digest: str,
    authority: CertificateFacts,
    now: float,
    request_: str,
    expected: DueReason | None,
) -> None:
    assert renewal.leaf_due(found, digest, authority, now, request_) == expected


def test_two_thirds_of_a_life() -> None:
    assert renewal.due_at(LEAF, AUTHORITY) == NOW - HOUR + 2 / 3 * (365 * DAY + HOUR)
    day = msgspec.structs.replace(LEAF, not_after=NOW + 23 * HOUR)
    assert renewal.due_at(day, AUTHORITY) == NOW + 15 * HOUR


def test_a_leaf_that_ends_with_its_authority_stays() -> None:
    """Another one would end with it too, and be due again at once."""
    last = msgspec.structs.replace(LEAF, not_after=AUTHORITY.not_after)
    assert renewal.due_at(last, AUTHORITY) == math.inf
    assert renewal.due_at(last) < AUTHORITY.not_after


def problem(reason: AuthorityReason, text: str) -> AuthorityProblem:
    remedy = (
        "Restore it from a backup, or annotate the VirtualCluster vcnode.io/rotate-cluster-ca=<any new value>"
    )
    return AuthorityProblem(reason, text.replace("REMEDY", remedy), REF)


@pytest.mark.parametrize(
    ("found", "signed", "now", "request_", "expected"),
    [
        (SECRET, SIGNED, NOW, "", None),
        (None, (), NOW, "", None),
        (
            None,
            SIGNED,
            NOW,
            "",
            problem(
                AuthorityReason.MISSING,
                f"{REF} is missing, and Secret {KEY}/admin-kubeconfig has a certificate that it signed. "
                "REMEDY to make another one: clients that trust the missing one alone are refused then.",
            ),
        ),
        (None, SIGNED, NOW, "yes", None),
        (
            secret(digests={}),
            SIGNED,
            NOW,
            "",
            problem(
                AuthorityReason.CHANGED,
                f"{REF} is not as vc-operator wrote it, and signs nothing. REMEDY to replace it.",
            ),
        ),
        (
            secret(certificates={"tls.crt": None}),
            (),
            NOW,
            "",
            problem(
                AuthorityReason.CHANGED,
                f"{REF} is not as vc-operator wrote it, and signs nothing. REMEDY to replace it.",
            ),
        ),
        (secret(digests={}), SIGNED, NOW, "yes", None),
        (
            secret(digests={}, annotations={keys.ROTATION_TOKEN: "yes"}),
            SIGNED,
            NOW,
            "yes",
            problem(
                AuthorityReason.CHANGED,
                f"{REF} is not as vc-operator wrote it, and signs nothing. REMEDY to replace it.",
            ),
        ),
        (
            SECRET,
            SIGNED,
            NOW + 365 * DAY,
            "",
            problem(
                AuthorityReason.EXPIRED,
                f"{REF} expired at {time_of(NOW + 365 * DAY)}. REMEDY to replace it.",
            ),
        ),
    ],
)
def test_an_authority_is_never_replaced_silently(
    found: SecretFacts | None,
    signed: tuple[Ref, ...],
    now: float,
    request_: str,
    expected: AuthorityProblem | None,
) -> None:
    assert renewal.authority_problem(REF, found, signed, now, request_) == expected


class Issued:
    """A control plane whose certificates are kept as the operator keeps them."""

    def __init__(self) -> None:
        self.plane = control_planes.control_plane()
        self.authorities = {
            spec.secret: issuing.new_authority(spec, NOW) for spec in catalog.authorities(self.plane)
        }
        self.facts = {name: facts_of(pair.certificate_pem) for name, pair in self.authorities.items()}
        self.secrets: dict[LeafSpec, SecretFacts | None] = dict.fromkeys(control_planes.specs(self.plane))
        self.writes: list[tuple[str, DueReason]] = []

    def reconcile(self, now: float) -> None:
        """Issues what is due, in order."""
        bundle = self.authorities[names.CLUSTER_CA].certificate_pem
        for spec, found in self.secrets.items():
            authority = self.facts[spec.authority]
            digest = catalog.spec_digest(spec, authority.spki_sha256, bundle)
            reason = renewal.leaf_due(found, digest, authority, now)
            if reason is not None:
                pair = issuing.issue_pair(spec, self.authorities[spec.authority], now)
                self.secrets[spec] = control_planes.kept(
                    issuing.leaf_data(spec, pair, bundle), {keys.SPEC_DIGEST: digest}
                )
                self.writes.append((spec.secret, reason))


def test_a_thousand_reconciles_write_nothing() -> None:
    """Within the first hours after all was issued, and again after the clock moved by 400 days."""
    issued = Issued()
    issued.reconcile(NOW)
    first = [(spec.secret, DueReason.MISSING) for spec in issued.secrets]
    assert issued.writes == first
    for turn in range(1000):
        issued.reconcile(NOW + turn * 50)
    assert issued.writes == first
    issued.writes.clear()
    later = NOW + 400 * DAY
    issued.reconcile(later)
    assert issued.writes == [(name, DueReason.AGE) for name, _ in first]
    for turn in range(1000):
        issued.reconcile(later + turn * 50)
    assert len(issued.writes) == len(first)
    assert all(
        found and found.certificate and found.certificate.not_after > later
        for found in issued.secrets.values()
    )


def test_short_certificates_are_renewed_each_day() -> None:
    issued = Issued()
    for hour in range(24 * 30):
        issued.reconcile(NOW + hour * HOUR)
    renewed = [name for name, reason in issued.writes if reason is DueReason.AGE]
    assert set(renewed) == {"operator-client", "acme-kubeconfig"}
    assert len(renewed) == 2 * ((24 * 30 - 1) // 16)


SPECS = {spec.secret: spec for spec in control_planes.specs()}
SERVING = SPECS["apiserver-serving"]


def condition(status: str, reason: str, message: str) -> Condition:
    return Condition("CertificatesValid", status, reason, message)


def issued(at: float = NOW, days: int = 365, spki: str = "c") -> SecretFacts:
    return secret(certificates={"tls.crt": leaf(at, days, spki)})


def leaf(at: float = NOW, days: int = 365, spki: str = "c") -> CertificateFacts:
    return CertificateFacts(at - HOUR, at + days * DAY, spki * 64, "cc", "aa")


@pytest.mark.parametrize(
    ("leaves", "served", "problems", "now", "expected"),
    [
        ({}, {}, (), NOW, condition("Unknown", "NotIssued", "No certificate is issued yet.")),
        (
            {SERVING: issued()},
            {},
            (),
            NOW,
            condition(
                "True",
                "Valid",
                f"The first to end is that of apiserver-serving, issued at {time_of(NOW)}, "
                f"until {time_of(NOW + 365 * DAY)}.",
            ),
        ),
        (
            {SERVING: issued(NOW, 365), SPECS["admin-kubeconfig"]: issued(NOW, 300)},
            {"apiserver-serving/pod-1": leaf(NOW, 200), "apiserver-serving/pod-2": leaf(NOW, 365)},
            (),
            NOW,
            condition(
                "True",
                "Valid",
                f"The first to end is that of apiserver-serving/pod-1, issued at {time_of(NOW)}, "
                f"until {time_of(NOW + 200 * DAY)}.",
            ),
        ),
        (
            {SERVING: issued(), SPECS["admin-kubeconfig"]: None},
            {},
            (),
            NOW,
            condition(
                "False",
                "NotIssued",
                f"Secret {KEY}/admin-kubeconfig not issued yet; vc-operator retries.",
            ),
        ),
        (
            {SERVING: issued(NOW + 400 * DAY, spki="d")},
            {"apiserver-serving/pod-1": leaf()},
            (),
            NOW + 400 * DAY,
            condition(
                "False",
                "Expired",
                f"apiserver-serving/pod-1 serves a certificate that expired at {time_of(NOW + 365 * DAY)}. "
                "Delete the pods that use it.",
            ),
        ),
        (
            {SERVING: issued()},
            {},
            (),
            NOW + 365 * DAY,
            condition(
                "False",
                "Expired",
                f"Secret {KEY}/apiserver-serving expired at {time_of(NOW + 365 * DAY)}. "
                "Delete the pods that use it.",
            ),
        ),
        (
            {SERVING: issued(NOW + 250 * DAY, spki="d")},
            {"apiserver-serving/pod-1": leaf()},
            (),
            NOW + 250 * DAY + HOUR - 1,
            condition(
                "True",
                "Valid",
                f"The first to end is that of apiserver-serving/pod-1, issued at {time_of(NOW)}, "
                f"until {time_of(NOW + 365 * DAY)}.",
            ),
        ),
        (
            {SERVING: issued(NOW + 250 * DAY, spki="d")},
            {"apiserver-serving/pod-1": leaf()},
            (),
            NOW + 250 * DAY + HOUR,
            condition(
                "False",
                "OldCertificateInUse",
                f"apiserver-serving/pod-1 serves the certificate of {time_of(NOW)}, "
                "though its Secret was renewed. Delete its pod.",
            ),
        ),
        (
            {SERVING: issued()},
            {},
            (AuthorityProblem(AuthorityReason.MISSING, "It is missing.", REF),),
            NOW,
            condition("False", "AuthorityMissing", "It is missing."),
        ),
    ],
)
def test_the_condition_is_of_certificates_in_use(
    leaves: Mapping[LeafSpec, SecretFacts | None],
    served: Mapping[str, CertificateFacts],
    problems: tuple[AuthorityProblem, ...],
    now: float,
    expected: Condition,
) -> None:
    assert renewal.certificates_condition(leaves, served, problems, now) == expected


def test_a_condition_names_five_and_counts_the_rest() -> None:
    found = renewal.certificates_condition(dict.fromkeys(SPECS.values()), {}, (), NOW)
    assert found.message == (
        f"Secret {KEY}/etcd-server; Secret {KEY}/apiserver-etcd-client; Secret {KEY}/apiserver-serving; "
        f"Secret {KEY}/apiserver-kubelet-client; Secret {KEY}/front-proxy-client; and 5 more not issued yet; "
        "vc-operator retries."
    )


def test_the_message_stays_as_time_passes() -> None:
    """Each change of a condition is a write of the VirtualCluster."""
    found = {
        renewal.certificates_condition({SERVING: issued()}, {}, (), NOW + hour * HOUR).message
        for hour in range(24 * 200)
    }
    assert len(found) == 1
