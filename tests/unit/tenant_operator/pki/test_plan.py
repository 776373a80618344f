# SPDX-License-Identifier: Apache-2.0
"""The plans of one control plane, from nothing to its last rotation, carried out in memory."""

import math
from collections.abc import Mapping

import msgspec
import pytest

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.pki import catalog, issuing, rotating
from tenant_operator.pki.facts import bundle_of
from tenant_operator.pki.plan import (
    MakeAuthority,
    MakeKeys,
    MakeLeaf,
    PkiInputs,
    PkiPlan,
    PkiStep,
    RotateSecret,
    plan_pki,
)
from tenant_operator.pki.renewal import REQUEST_S
from tenant_operator.pki.rotation import PLANS, Asked, Consumer, ConsumerAnswer, RotationStep
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import DAY, KEY, NOW

PLANE = control_planes.control_plane()
AUTHORITIES, LEAVES = catalog.authorities(PLANE), control_planes.specs(PLANE)
NAMES = [spec.secret for spec in AUTHORITIES]
LEAF_NAMES = [spec.secret for spec in LEAVES]
TOKEN_LIFE_S = 3600.0


class SecretStore:
    """The Secrets of one control plane, and an edge that carries plans out."""

    def __init__(self) -> None:
        self.secrets: dict[Ref, tuple[dict[str, bytes], dict[str, str]]] = {}
        self.requests: dict[str, str] = {}
        self.now = NOW
        self.taken: list[str] = []
        self.can_ask = True

    def data(self, name: str) -> dict[str, bytes]:
        return self.secrets[Ref("Secret", KEY, name)][0]

    def inputs(self) -> PkiInputs:
        return PkiInputs(
            KEY,
            AUTHORITIES,
            LEAVES,
            {ref: control_planes.read(*found) for ref, found in self.secrets.items()},
            self.bundle(),
            self.requests,
            dict.fromkeys(PLANS, self.asked()) if self.can_ask else {},
            self.now,
            {names.SERVICE_ACCOUNT_KEYS: TOKEN_LIFE_S, names.CLUSTER_CA: TOKEN_LIFE_S},
        )

    def plan(self) -> PkiPlan:
        return plan_pki(self.inputs())

    def bundle(self) -> bytes:
        ref = Ref("Secret", KEY, names.CLUSTER_CA)
        data = self.secrets[ref][0] if ref in self.secrets else {}
        return bundle_of(data.get(key, b"") for key in ("tls.crt", "next.crt", "previous.crt"))

    def asked(self) -> Asked:
        """All have read what is there now."""
        trusts, uses = set[str](), set[str]()
        for data, annotations in self.secrets.values():
            ids = annotations.get(keys.KEY_IDS, "").split(",")
            trusts.update(ids)
            uses.add(ids[0])
            certificates = control_planes.read(data, annotations).certificates
            for key in ("tls.crt", "next.crt", "previous.crt"):
                found = certificates.get(key)
                if found is not None:
                    trusts.add(found.key_id)
                    uses |= {found.key_id, found.authority_key_id} if key == "tls.crt" else set()
        answer = ConsumerAnswer(frozenset(trusts), frozenset(uses))
        return {consumer: {"0": answer} for consumer in Consumer}

    def reconcile(self, most: float = math.inf) -> PkiPlan:
        """Take the steps of one plan, at most so many: then the operator is killed."""
        plan = self.plan()
        for number, step in enumerate(plan.steps):
            if number >= most:
                break
            self.take(step)
        return plan

    def take(self, step: PkiStep) -> None:
        match step:
            case MakeAuthority(spec, ref, annotations):
                self.taken.append(f"make {ref.name}")
                self.write(
                    ref, dict(issuing.authority_data(issuing.new_authority(spec, self.now))), annotations
                )
            case MakeKeys(ref, annotations):
                self.taken.append(f"make {ref.name}")
                is_tokens = ref.name == names.SERVICE_ACCOUNT_KEYS
                data, more = (
                    rotating.new_service_account_keys() if is_tokens else rotating.new_encryption_config()
                )
                self.write(ref, data, annotations | more)
            case MakeLeaf(spec, authority, annotations, bundle, reason):
                self.taken.append(f"issue {spec.secret}: {reason}")
                pair = issuing.issue_pair(spec, issuing.signing_pair(self.secrets[authority][0]), self.now)
                self.write(spec.ref, dict(issuing.leaf_data(spec, pair, bundle)), annotations)
            case RotateSecret(what, ref, rotation_step, request, spec):
                self.taken.append(f"{rotation_step} {what}")
                if rotation_step is RotationStep.REWRITE:
                    return
                found = rotating.rotate(
                    PLANS[what],
                    rotation_step,
                    *self.secrets[ref],
                    self.now,
                    request=request,
                    spec=spec,
                )
                assert found is not None
                self.write(ref, *found)

    def write(self, ref: Ref, data: dict[str, bytes], annotations: Mapping[str, str]) -> None:
        manifest = issuing.secret_of(ref.namespace, ref.name, data, {}, annotations)
        self.secrets[ref] = (data, manifest["metadata"]["annotations"])

    def edit(self, name: str, key: str) -> None:
        self.data(name)[key] = b"edited"

    def settle(self) -> list[str]:
        """Reconcile until nothing is to be done; the steps since the last time."""
        self.taken.clear()
        for _ in range(40):
            plan = self.reconcile()
            if not plan.steps and not plan.rotations:
                break
            self.now += TOKEN_LIFE_S / 2
        return list(self.taken)


@pytest.fixture
def store() -> SecretStore:
    made = SecretStore()
    made.settle()
    return made


def test_from_nothing() -> None:
    """Authorities and keys first. Their leaves follow once they are there."""
    store = SecretStore()
    first = store.reconcile()
    assert store.taken == [f"make {name}" for name in (*NAMES, "service-account-keys", "encryption-config")]
    assert (first.problems, first.rotations, first.due_at) == ((), (), math.inf)
    store.taken.clear()
    store.reconcile()
    assert store.taken == [f"issue {name}: Missing" for name in LEAF_NAMES]
    last = store.plan()
    # The certificates of 24 hours are due first.
    assert last == PkiPlan((), due_at=NOW + 2 / 3 * 25 * 3600 - 3600)


@pytest.mark.parametrize("killed", range(len(NAMES) + 2 + len(LEAF_NAMES)))
def test_killed_at_each_step_of_the_first_plans(killed: int) -> None:
    store = SecretStore()
    made = len(NAMES) + 2
    if killed >= made:
        store.reconcile()
    store.reconcile(killed if killed < made else killed - made)
    store.settle()
    assert {ref.name for ref in store.secrets} == {
        *NAMES,
        *LEAF_NAMES,
        "service-account-keys",
        "encryption-config",
    }
    assert store.plan().steps == ()


def test_a_thousand_plans_have_no_step(store: SecretStore) -> None:
    inputs = store.inputs()
    for turn in range(1000):
        assert plan_pki(msgspec.structs.replace(inputs, now_s=NOW + turn * 40)).steps == ()


def test_after_400_days_all_is_issued_again_at_once(store: SecretStore) -> None:
    """Also with nobody to ask: the expired client of nodes is of no use to wait for."""
    store.now = NOW + 400 * DAY
    store.can_ask = False
    store.taken.clear()
    store.reconcile()
    assert store.taken == [f"issue {name}: Age" for name in LEAF_NAMES]
    assert store.plan().steps == ()


ROTATIONS = {
    "front-proxy-ca": [
        "Begin front-proxy-ca",
        "Promote front-proxy-ca",
        "issue front-proxy-client: AuthorityChanged",
        "Drop front-proxy-ca",
        "Forget front-proxy-ca",
    ],
    "etcd-ca": [
        "Begin etcd-ca",
        "Promote etcd-ca",
        "issue etcd-server: AuthorityChanged",
        "issue apiserver-etcd-client: AuthorityChanged",
        "Drop etcd-ca",
        "Forget etcd-ca",
    ],
    "kubelet-client-ca": [
        "Begin kubelet-client-ca",
        "Promote kubelet-client-ca",
        "issue apiserver-kubelet-client: AuthorityChanged",
        "Drop kubelet-client-ca",
    ],
    "cluster-ca": [
        "Begin cluster-ca",
        *(
            f"issue {name}: SpecChanged"
            for name in (
                "controller-manager-client",
                "operator-client",
                "admin-kubeconfig",
                "acme-kubeconfig",
            )
        ),
        "Promote cluster-ca",
        *(
            f"issue {name}: AuthorityChanged"
            for name in (
                "apiserver-serving",
                "controller-manager-client",
                "controller-manager-serving",
                "operator-client",
                "admin-kubeconfig",
                "acme-kubeconfig",
            )
        ),
        "Mark cluster-ca",
        "Drop cluster-ca",
        *(
            f"issue {name}: SpecChanged"
            for name in (
                "controller-manager-client",
                "operator-client",
                "admin-kubeconfig",
                "acme-kubeconfig",
            )
        ),
        "Forget cluster-ca",
    ],
    "service-account-keys": [
        "Begin service-account-keys",
        "Promote service-account-keys",
        "Mark service-account-keys",
        "Drop service-account-keys",
    ],
    "gateway-ca": ["Begin gateway-ca", "Promote gateway-ca", "Drop gateway-ca", "Forget gateway-ca"],
    "certificates": [
        *(f"issue {name}: Requested" for name in LEAF_NAMES),
    ],
    "encryption-key": ["Begin encryption-key", "Promote encryption-key", "Drop encryption-key"],
}


@pytest.mark.parametrize("what", ROTATIONS)
def test_a_rotation_by_request(what: str, store: SecretStore) -> None:
    """Once for each request, and whatever is due because of it comes in between."""
    store.requests[what] = "one"
    assert store.settle() == ROTATIONS[what]
    assert store.settle() == []
    store.requests[what] = "two"
    store.now += REQUEST_S
    assert store.settle() == ROTATIONS[what]


@pytest.mark.parametrize("what", sorted(ROTATIONS.keys() - {"certificates"}))
def test_a_rotation_waits_by_name_while_nobody_answers(what: str, store: SecretStore) -> None:
    store.requests[what] = "one"
    store.can_ask = False
    store.reconcile()
    store.taken.clear()
    for _ in range(5):
        store.reconcile()
    (found,) = (each for each in store.plan().rotations if each.what == what)
    first = PLANS[what].verifiers
    assert (found.token, found.phase) == ("one", "Trusted" if first else "Reissued")
    assert found.waits_for.split(", ") == [str(each) for each in first or PLANS[what].users[0]]
    assert not [step for step in store.taken if step.startswith(("Promote", "Drop")) and first]
    assert not [step for step in store.taken if step.startswith("Drop")]


def test_what_is_complete_is_known_by_its_request(store: SecretStore) -> None:
    """Also of certificates, and of a key that this control plane does not have."""
    assert store.plan().rotated == {}
    store.requests |= {"etcd-ca": "one", "certificates": "two", "of-another": "three"}
    assert store.plan().rotated == {"of-another": "three"}
    store.settle()
    assert store.plan().rotated == dict(store.requests)
    store.requests["etcd-ca"] = "four"
    store.reconcile()
    assert store.plan().rotated == {"certificates": "two", "of-another": "three"}


def test_old_authorities_rotate_by_themselves(store: SecretStore) -> None:
    store.settle()
    store.now = NOW + 2440 * DAY
    taken = store.settle()
    for name in NAMES:
        assert [step for step in taken if step.endswith(f" {name}")] == [
            f"Begin {name}",
            f"Promote {name}",
            *([f"Mark {name}"] if PLANS[name].held else []),
            f"Drop {name}",
            *([f"Forget {name}"] if PLANS[name].forgotten_by else []),
        ]
    assert store.plan().steps == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_authority_is_made_by_request_only(name: str, store: SecretStore) -> None:
    """Those that signed nothing are made again without a word."""
    del store.secrets[Ref("Secret", KEY, name)]
    if name == "gateway-ca":
        assert store.settle() == ["make gateway-ca"]
        return
    plan = store.plan()
    assert [problem.reason for problem in plan.problems] == ["AuthorityMissing"]
    assert [step for step in plan.steps if not isinstance(step, MakeLeaf)] == []
    store.requests[name] = "one"
    taken = store.settle()
    assert taken[0] == f"make {name}"
    assert not [step for step in taken if step.endswith(name) and step != taken[0]]
    assert store.plan().problems == ()


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
def test_an_edited_authority_signs_nothing(key: str, store: SecretStore) -> None:
    store.edit("etcd-ca", key)
    del store.secrets[Ref("Secret", KEY, "etcd-server")]
    plan = store.plan()
    assert [problem.reason for problem in plan.problems] == ["AuthorityChanged"]
    assert plan.steps == ()
    store.requests["etcd-ca"] = "one"
    taken = store.settle()
    assert taken[0] == ("make etcd-ca" if key == "tls.crt" else "Begin etcd-ca")
    assert "issue etcd-server: Missing" in taken
    assert (store.plan().problems, store.plan().steps) == ((), ())


@pytest.mark.parametrize(
    ("name", "what"),
    [("service-account-keys", "service-account-keys"), ("encryption-config", "encryption-key")],
)
def test_lost_keys_are_made_by_request_only(name: str, what: str, store: SecretStore) -> None:
    """What was encrypted by a lost key cannot be read: a new one, made in silence, would hide that."""
    del store.secrets[Ref("Secret", KEY, name)]
    plan = store.plan()
    assert [(problem.reason, problem.message) for problem in plan.problems] == [
        (
            "KeysMissing",
            f"Secret {KEY}/{name} is missing. Restore it from a backup, or annotate the VirtualCluster "
            f"vcnode.io/rotate-{what}=<any new value> to make another one: what this one signed is refused "
            "then, and what it encrypted cannot be read.",
        )
    ]
    assert plan.steps == ()
    store.requests[what] = "one"
    assert store.settle() == [f"make {name}"]


def test_edited_keys_are_replaced_by_request_only(store: SecretStore) -> None:
    store.edit("encryption-config", "config.yaml")
    plan = store.plan()
    assert [problem.reason for problem in plan.problems] == ["KeysChanged"]
    assert plan.steps == ()
    store.requests["encryption-key"] = "one"
    assert store.settle() == ["make encryption-config"]


@pytest.mark.parametrize("name", [name for name in LEAF_NAMES if name != "acme-kubeconfig"])
def test_an_edited_or_deleted_leaf_is_issued_again(name: str, store: SecretStore) -> None:
    store.edit(name, "tls.key")
    assert store.settle() == [f"issue {name}: Edited"]
    del store.secrets[Ref("Secret", KEY, name)]
    assert store.settle() == [f"issue {name}: Missing"]


def test_a_changed_name_is_issued_at_once(store: SecretStore) -> None:
    """Another exposure: the serving certificate, and the kubeconfig that names it."""
    leaves = catalog.leaves(PLANE, [control_planes.ADDRESS], ["other.example.com"])
    plan = plan_pki(msgspec.structs.replace(store.inputs(), leaves=leaves))
    assert [(step.spec.secret, step.reason) for step in plan.steps if isinstance(step, MakeLeaf)] == [
        ("apiserver-serving", "SpecChanged"),
        ("acme-kubeconfig", "SpecChanged"),
    ]


def test_many_that_a_rotation_waits_for_are_counted(store: SecretStore) -> None:
    store.requests["kubelet-client-ca"] = "one"
    store.can_ask = False
    store.reconcile()
    nodes = {f"node-{number:02}": None for number in range(300)}
    inputs = msgspec.structs.replace(store.inputs(), asked={"kubelet-client-ca": {Consumer.VN_AGENT: nodes}})
    (rotation,) = plan_pki(inputs).rotations
    assert (
        rotation.waits_for == ", ".join(f"vn-agent/node-{number:02}" for number in range(10)) + ", 290 more"
    )
