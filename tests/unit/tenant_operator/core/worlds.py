# SPDX-License-Identifier: Apache-2.0
"""A super cluster in state that takes the operator's steps: one after the other, and as far as a test
wants."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tenancy import keys
from tenant_operator.core import databases, rotations
from tenant_operator.core.observed import Observed, ProbeResult, is_own
from tenant_operator.core.plan import Settings, TenantPlan
from tenant_operator.core.probes import (
    NODES_PODS,
    JobLogProbe,
    NamespacesProbe,
    NodesProbe,
    RotationProbe,
    ServerPodsProbe,
    SourceProbe,
)
from tenant_operator.core.status import status_after, status_patch
from tenant_operator.core.steps import (
    AddEncryptionKeys,
    Apply,
    ClaimNamespace,
    CopyKubeconfig,
    CopySecret,
    DropDatabase,
    EndPods,
    GenerateKeys,
    IssueAuthority,
    IssueLeaf,
    MakeDatabase,
    OperatorStep,
    PatchCluster,
    Remove,
    Rotate,
    SettleDefaults,
)
from tenant_operator.core.tenant import plan
from tenant_operator.defaults.desired import ManifestFile
from tenant_operator.defaults.inventory import INVENTORY_KEY, Inventory, write_inventory
from tenant_operator.defaults.plan import applied
from tenant_operator.defaults.record import RECORD_KEY, next_record, write_record
from tenant_operator.life.store_keys import CONFIG, with_keys_of
from tenant_operator.model import names
from tenant_operator.model.cluster_version import ClusterVersion
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.pki import issuing, rotating
from tenant_operator.pki.facts import JUDGED_BY, SecretFacts
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import PLANS, Asked, Consumer, ConsumerAnswer, RotationStep
from tenant_operator.provisioners.imported.adoption import kubeconfig_copy
from tests.unit.tenant_operator.core.kept_fields import kept, kept_all, whole_all

NOW = 1_800_000_000.0
SETTINGS = Settings(vn_agent_authority_pem=b"-----BEGIN CERTIFICATE-----\nagent\n-----END CERTIFICATE-----\n")
VERSION = {
    "metadata": {"name": "v1.34"},
    "spec": {
        "kubernetesVersion": "1.34.4",
        "etcdVersion": "3.7.3",
        "images": {"apiServer": "a:1", "controllerManager": "c:1", "etcd": "e:1"},
    },
}


@dataclass
class FakeWorld:
    """One VirtualCluster and what was made for it. `writes` counts what changed an object."""

    cluster: Object
    version: Object = field(default_factory=lambda: VERSION)
    more_versions: tuple[Object, ...] = ()
    now_s: float = NOW
    objects: dict[Ref, Object] = field(default_factory=dict)
    probes: dict[str, ProbeResult] = field(default_factory=dict)
    settings: Settings = SETTINGS
    super_namespaces: dict[str, str] = field(default_factory=dict)
    server_pods: str = ""
    writes: int = 0
    ended_pods: list[str] = field(default_factory=list)
    pass_problems: tuple[str, ...] = ()
    source: ProbeResult | None = None
    answers: dict[str, Asked] = field(default_factory=dict)
    is_cleaned: bool = False
    is_synced: bool = False
    """Whether there is a vc-syncer, which reports by which certificate it works."""
    defaults: dict[str, tuple[ManifestFile, ...]] = field(default_factory=dict)
    node_addresses: tuple[str, ...] = ()
    report: str = '{"hash":7,"revision":1119,"totalKey":208,"totalSize":614400,"version":"3.7.0"}'
    source_objects: dict[Ref, Object] = field(default_factory=dict)
    may_start: bool = True
    _versions: Any = field(default_factory=lambda: itertools.count(100))

    def observed(self, *, is_whole: bool = False) -> Observed:
        """What the operator sees; `is_whole`: of objects all that the API server has."""
        seen = whole_all if is_whole else kept_all
        versions = [msgspec.convert(each, ClusterVersion) for each in (self.version, *self.more_versions)]
        cluster = msgspec.convert(self.cluster, VirtualCluster)
        return Observed(
            cluster,
            {each.metadata.name: each for each in versions},
            {ref: live for ref, live in seen(self.objects).items() if is_own(cluster, ref)},
            self.now_s,
            dict(self.probes),
            defaults=self.defaults,
            source_objects=seen(self.source_objects),
            node_addresses=self.node_addresses,
            may_start=self.may_start,
        )

    def plan(self) -> TenantPlan:
        """The next plan."""
        made = plan(self.observed(), self.settings)
        assert made == plan(self.observed(is_whole=True), self.settings)
        return made

    def run(self, most: int = 50) -> int:
        """Reconcile until nothing is to be done; returns the number of steps."""
        total = 0
        for _ in range(most):
            made = self.plan()
            for step in made.steps:
                self.carry_out(step)
            total += len(made.steps)
            is_new = self.finish(made)
            if self.cluster["metadata"].get("deletionTimestamp"):
                # The next list of namespaces is due by then.
                self.now_s += made.check_again_s or 0.0
            if not made.steps and not is_new:
                return total
        raise AssertionError(f"not settled after {most} plans: {self.plan()}")

    def run_killed(self, most: int) -> None:
        """The operator is killed after `most` steps, and loses what a process knows; the next one goes on."""
        taken = 0
        while taken < most:
            made = self.plan()
            for step in made.steps[: most - taken]:
                self.carry_out(step)
            taken += len(made.steps[: most - taken])
            if taken < most:
                self.finish(made)
        self.probes.clear()
        self.run()

    def finish(self, made: TenantPlan) -> bool:
        """Write the status, answer the probes, and let workloads become ready. Returns whether any
        changed."""
        observed = self.observed()
        after = status_after(observed, made, ())
        patch = status_patch(observed.virtual_cluster, after) if made.findings else None
        if patch is not None:
            self.cluster["status"] = _merged(self.cluster.get("status", {}), patch["status"])
        news = patch is not None
        if self.is_synced:
            news |= self.report_credential()
        for probe in made.probes:
            before = self.probes.get(probe.name)
            if isinstance(probe, SourceProbe):
                assert self.source is not None
                self.probes[probe.name] = msgspec.structs.replace(self.source, at=self.now_s)
                news |= before is None or before.facts != self.source.facts
                continue
            if isinstance(probe, JobLogProbe):
                facts = {"uid": probe.uid, "text": self.report}
                self.probes[probe.name] = ProbeResult(is_ok=True, at=self.now_s, facts=facts)
                news |= before is None or before.facts != facts
                continue
            if isinstance(probe, RotationProbe):
                asked = self.asked(probe.what)
                facts = {rotations.VERSION: probe.version, rotations.ASKED: rotations.encode(asked)}
                news |= before is None or before.facts != facts
                self.probes[probe.name] = ProbeResult(is_ok=True, at=self.now_s, facts=facts)
                continue
            if isinstance(probe, NodesProbe):
                facts = {NODES_PODS: probe.pods} if probe.pods else {}
                news |= before is None or not before.is_ok or before.facts != facts
                self.probes[probe.name] = ProbeResult(is_ok=True, at=self.now_s, facts=facts)
                continue
            if isinstance(probe, ServerPodsProbe):
                left = self.server_pods
                news |= before is None or before.is_ok == bool(left)
                self.probes[probe.name] = ProbeResult(is_ok=not left, at=self.now_s, detail=left)
                continue
            facts = dict(self.super_namespaces) if isinstance(probe, NamespacesProbe) else {}
            news |= before is None or not before.is_ok or before.facts != facts
            self.probes[probe.name] = ProbeResult(is_ok=not facts, at=self.now_s, facts=facts)
        return self.make_ready() or news

    def report_credential(self) -> bool:
        """As vc-syncer does. Returns whether it is another one than before."""
        key = self.cluster["status"]["clusterNamespace"]
        live = kept(found := Ref("Secret", key, names.SYNCER_CLIENT), self.objects[found])
        condition = {
            "reason": keys.CREDENTIAL_IN_USE,
            "status": "True",
            "message": live.digests["tls.crt"],
        }
        others = [
            each for each in self.cluster["status"]["conditions"] if each["reason"] != keys.CREDENTIAL_IN_USE
        ]
        is_new = condition not in self.cluster["status"]["conditions"]
        self.cluster["status"]["conditions"] = [*others, condition]
        return is_new

    def asked(self, what: str) -> Asked:
        """What consumers answer: all have read what their Secrets have now. A test may put `answers`."""
        if what in self.answers:
            return self.answers[what]
        trusts, uses = set[str](), set[str]()
        for value in self.objects.values():
            # What is copied for vn-agents is no program's own.
            if value["kind"] == "Secret" and value["data"].keys() & {"tls.key", "signing.pem", "config.yaml"}:
                facts = _facts(value)
                ids = facts.annotations.get(keys.KEY_IDS, "").split(",")
                found = [facts.certificates.get(f"{each}.crt") for each in ("tls", "next", "previous")]
                trusts |= {*ids, *(each.key_id for each in found if each is not None)}
                uses |= {ids[0], *((found[0].key_id, found[0].authority_key_id) if found[0] else ())}
        former = _facts(self.objects[self.rotating(what)]).certificates.get("former.crt")
        published = set() if former is None or self.is_cleaned else {former.key_id}
        answer = ConsumerAnswer(frozenset(trusts), frozenset(uses))
        return {
            **{consumer: {"0": answer} for consumer in Consumer},
            Consumer.AUTHENTICATION: {"": ConsumerAnswer(frozenset(trusts | published))},
        }

    def rotating(self, what: str) -> Ref:
        """The Secret of what rotates."""
        return Ref("Secret", self.cluster["status"]["clusterNamespace"], PLANS[what].secret)

    def make_ready(self) -> bool:
        """What controllers and kubelets do. Returns whether that changed an object."""
        is_changed = False
        for ref, value in self.objects.items():
            if ref.kind in ("Deployment", "StatefulSet"):
                wanted = value["spec"]["replicas"]
                status = {
                    "replicas": wanted,
                    "observedGeneration": value["metadata"]["generation"],
                    "readyReplicas": wanted,
                    "updatedReplicas": wanted,
                }
                is_changed |= value.get("status") != status
                value["status"] = status
            elif ref.kind == "Job" and "status" not in value:
                end = {"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
                value["status"] = {"conditions": [end]}
                is_changed = True
            elif ref.name == names.API_SERVER_SERVICE and "clusterIPs" not in value["spec"]:
                value["spec"] |= {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}
                is_changed = True
        return is_changed

    def carry_out(self, step: OperatorStep) -> None:
        """One step, as the edge does it."""
        match step:
            case Apply(manifest):
                self._apply(manifest)
            case ClaimNamespace(manifest):
                self._create(manifest)
            case Remove(ref, uid):
                self._remove(ref, uid)
            case EndPods(namespace, _):
                self.ended_pods.append(namespace)
            case PatchCluster(patch):
                change = {key: value for key, value in patch["metadata"].items() if key != "resourceVersion"}
                self.cluster["metadata"] = _merged(self.cluster["metadata"], change)
            case IssueAuthority(spec, namespace, labels, annotations, version):
                data = issuing.authority_data(issuing.new_authority(spec, self.now_s))
                self._write(issuing.secret_of(namespace, spec.secret, data, labels, annotations), version)
            case IssueLeaf(spec, authority, labels, annotations, bundle, version):
                signer = issuing.signing_pair(self.data(authority))
                data = issuing.leaf_data(spec, issuing.issue_pair(spec, signer, self.now_s), bundle)
                self._write(
                    issuing.secret_of(spec.namespace, spec.secret, data, labels, annotations), version
                )
            case GenerateKeys(secret, labels, annotations, version):
                is_tokens = secret.name == names.SERVICE_ACCOUNT_KEYS
                data, more = (
                    rotating.new_service_account_keys() if is_tokens else rotating.new_encryption_config()
                )
                made = issuing.secret_of(secret.namespace, secret.name, data, labels, annotations | more)
                self._write(made, version)
            case Rotate(rotation, labels, servers):
                self.rotate(rotation, labels, servers)
            case SettleDefaults():
                self._apply(self.settled(step))
            case CopyKubeconfig(_, _, target, digest, labels):
                self._apply(kubeconfig_copy(digest, target.namespace, labels, b"text"))
            case AddEncryptionKeys(source, target, labels, mark, _):
                live = self.objects.get(target)
                data, more = (
                    rotating.new_encryption_config()
                    if live is None
                    else (self.data(target), live["metadata"]["annotations"])
                )
                other = {**self.source_objects, **self.objects}[source]["data"][CONFIG]
                data[CONFIG] = with_keys_of(data[CONFIG], base64.b64decode(other))
                annotations = more | {keys.RESTORE_TOKEN: mark}
                self._apply(issuing.secret_of(target.namespace, target.name, data, labels, annotations))
            case CopySecret(source, is_optional=True) if source not in self.objects:
                pass
            case CopySecret(source, target, labels):
                notes = self.objects[source]["metadata"].get("annotations", {})
                kept_notes = {key: notes[key] for key in JUDGED_BY if key in notes}
                data = self.data(source)
                self._apply(issuing.secret_of(target.namespace, target.name, data, labels, kept_notes))
            case MakeDatabase(server, target, name, connections, labels):
                annotations = {
                    keys.DATABASE: databases.annotation(server, name),
                    keys.DATABASE_CONNECTIONS: str(connections),
                }
                data = {"endpoint": b"postgres://", "ca.crt": b"authority", "password": b"password"}
                self._apply(issuing.secret_of(target.namespace, target.name, data, labels, annotations))
            case DropDatabase(_, credential, uid):
                self._remove(credential, uid)

    def settled(self, step: SettleDefaults) -> Object:
        """What a pass writes that applied all, or that had `pass_problems`."""
        problems, digest = self.pass_problems, step.desired.digest
        entries = tuple(applied(each, {"metadata": {"uid": "u"}}) for each in step.desired.objects)
        inventory = Inventory("" if problems else digest, entries)
        record = next_record(step.record, digest, self.now_s, problems, is_done=not problems)
        data = {INVENTORY_KEY: write_inventory(inventory), RECORD_KEY: write_record(record)}
        metadata = {"name": step.target.name, "namespace": step.target.namespace, "labels": step.labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def rotate(self, rotation: RotateSecret, labels: dict[str, str], servers: str) -> None:
        """One step of a rotation, as the edge takes it."""
        ref = rotation.secret
        if rotation.step is RotationStep.CLEAN:
            self.is_cleaned = True
            # The next question is asked seconds later.
            del self.probes[f"rotation/{rotation.what}"]
            return
        found = rotating.rotate(
            PLANS[rotation.what],
            rotation.step,
            self.data(ref),
            self.objects[ref]["metadata"]["annotations"],
            self.now_s,
            request=rotation.request,
            spec=rotation.spec,
            progress=rotations.progress_text(servers, ""),
        )
        if found is not None:
            version = self.objects[ref]["metadata"]["resourceVersion"]
            self._write(issuing.secret_of(ref.namespace, ref.name, found[0], labels, found[1]), version)

    def data(self, secret: Ref) -> dict[str, bytes]:
        """What is in a Secret."""
        found = self.objects[secret]["data"]
        return {key: base64.b64decode(value) for key, value in found.items()}

    def _write(self, manifest: Object, version: str) -> None:
        ref = ref_of(manifest)
        if version:
            assert self.objects[ref]["metadata"]["resourceVersion"] == version
            del self.objects[ref]
        self._create(manifest)

    def _remove(self, ref: Ref, uid: str) -> None:
        """A Namespace takes all that is in it."""
        if ref.kind == "Namespace" and self.super_namespaces.get(ref.name) == uid:
            del self.super_namespaces[ref.name]
        if ref in self.objects and self.objects[ref]["metadata"]["uid"] == uid:
            gone = [each for each in self.objects if each == ref or each.namespace == ref.name]
            for each in gone if ref.kind == "Namespace" else [ref]:
                del self.objects[each]
            self.writes += 1

    def _create(self, manifest: Object) -> None:
        ref = ref_of(manifest)
        if ref not in self.objects:
            self._put(ref, manifest, generation=1)

    def _apply(self, manifest: Object) -> None:
        ref = ref_of(manifest)
        before = self.objects.get(ref)
        if before is None:
            self._put(ref, manifest, generation=1)
            return
        merged = json.loads(json.dumps(before))
        for key, value in manifest.items():
            # All values of a Secret or ConfigMap are the operator's: those that it leaves out go.
            if key != "data" and isinstance(value, dict) and isinstance(merged.get(key), dict):
                merged[key] |= value
            else:
                merged[key] = value
        generation = before["metadata"]["generation"] + (merged.get("spec") != before.get("spec"))
        self._put(ref, merged, generation=generation)

    def _put(self, ref: Ref, value: Object, generation: int) -> None:
        made = json.loads(json.dumps(value))
        version = str(next(self._versions))
        made["metadata"] |= {"resourceVersion": version, "generation": generation}
        made["metadata"].setdefault("uid", f"uid-{version}")
        self.objects[ref] = made
        self.writes += 1


def _merged(before: Any, patch: Any) -> Any:
    """As RFC 7386 has it."""
    if not isinstance(patch, dict):
        return patch
    found = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


def virtual_cluster(name: str = "acme", **spec: Any) -> Object:
    """A VirtualCluster as a user creates it."""
    metadata = {
        "name": name,
        "namespace": "tenants",
        "uid": "3c6ef372-0000-4000-8000-000000000001",
        "resourceVersion": "7",
        "generation": 1,
    }
    return {"metadata": metadata, "spec": {"clusterVersionName": "v1.34"} | spec}


def _facts(secret: Object) -> SecretFacts:
    return kept(ref_of(secret), secret).secret
