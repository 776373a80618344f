# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, expected, nothing_installed, read_installed, state_digest
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.restore.script import full_restore
from tests.unit.ruleset.kernel import Kernel
from tests.unit.ruleset.models import RENDERERS, everything, ruleset, services

RULESET = ruleset(RENDERERS[Backend.IPTABLES](everything(Family.IPV4)))
(DOCUMENT,) = RULESET.documents


def _guest() -> Kernel:
    kernel = Kernel()
    kernel.restore("*nat\n:MESH - [0:0]\n-A OUTPUT -p tcp -j MESH\nCOMMIT\n")
    kernel.restore(full_restore(DOCUMENT, nothing_installed(Family.IPV4, Backend.IPTABLES), RULESET.digest))
    return kernel


def _held(kernel: Kernel) -> InstalledRules:
    return read_installed(kernel.save(), Family.IPV4, Backend.IPTABLES)


def test_what_was_applied_is_held() -> None:
    held = _held(_guest())
    assert held == expected(DOCUMENT, RULESET.digest)
    assert held.document() == DOCUMENT
    assert held.matches(DOCUMENT)
    assert held.is_marked(RULESET.digest)
    assert not held.is_empty


def test_nothing_is_held() -> None:
    held = _held(Kernel())
    assert held == nothing_installed(Family.IPV4, Backend.IPTABLES)
    assert held.is_empty
    assert held.marker == ""
    assert not held.is_marked(RULESET.digest)


@pytest.mark.parametrize("backend", Backend)
def test_expected_is_marked_or_not(backend: Backend) -> None:
    document = RENDERERS[backend](everything(Family.IPV6))
    assert expected(document, "ab" * 32).marker == "VCN-MARK-abababababababab"
    assert expected(document).marker == ""
    assert expected(document, "ab" * 32).document() == document


@pytest.mark.parametrize(
    ("in_filter", "in_nat", "marker"),
    [
        (("1",), ("1",), "VCN-MARK-1"),
        (("1",), ("2",), ""),
        (("1",), (), ""),
        (("1", "2"), ("1", "2"), ""),
    ],
)
def test_marker_counts_if_all_tables_agree(
    in_filter: tuple[str, ...], in_nat: tuple[str, ...], marker: str
) -> None:
    names = [*(f"filter/VCN-MARK-{one}" for one in in_filter), *(f"nat/VCN-MARK-{one}" for one in in_nat)]
    held = InstalledRules(Family.IPV4, Backend.IPTABLES, dict.fromkeys(names, ()), {})
    assert held.marker == marker


DRIFT = {
    "a hook is gone": "*nat\n-D OUTPUT -j VCN-SERVICES\nCOMMIT\n",
    "a hook is there twice": "*filter\n-A OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES\nCOMMIT\n",
    "a mesh stands behind our hook": "*nat\n-A OUTPUT -p tcp -j MESH\nCOMMIT\n",
    "another hook": "*nat\n-A PREROUTING -j VCN-SERVICES\nCOMMIT\n",
    "a chain is empty": "*filter\n:VCN-SERVICES - [0:0]\nCOMMIT\n",
    "a rule is added": "*nat\n-A VCN-SERVICES -j RETURN\nCOMMIT\n",
    "a chain is added": "*nat\n:VCN-OTHER - [0:0]\nCOMMIT\n",
}


@pytest.mark.parametrize("change", DRIFT.values(), ids=DRIFT)
def test_drift_is_seen(change: str) -> None:
    kernel = _guest()
    before = state_digest([_held(kernel)])
    kernel.restore(change)
    assert not _held(kernel).matches(DOCUMENT)
    assert state_digest([_held(kernel)]) != before


def test_a_flushed_table_is_drift() -> None:
    kernel = _guest()
    before = state_digest([_held(kernel)])
    kernel.restore("*nat\nCOMMIT\n", noflush=False)
    assert not _held(kernel).matches(DOCUMENT)
    assert not _held(kernel).is_marked(RULESET.digest), "one table's marker is not enough"
    assert state_digest([_held(kernel)]) != before


@pytest.mark.parametrize(
    "change",
    [
        "*nat\n-A MESH -j RETURN\nCOMMIT\n",
        "*nat\n:OTHER - [0:0]\nCOMMIT\n",
        "*filter\n-A OUTPUT -j ACCEPT\nCOMMIT\n",
        "*filter\n-A INPUT -j DROP\nCOMMIT\n",
    ],
)
def test_what_is_not_ours_is_no_drift(change: str) -> None:
    kernel = _guest()
    before = state_digest([_held(kernel)])
    kernel.restore(change)
    assert _held(kernel).matches(DOCUMENT)
    assert state_digest([_held(kernel)]) == before


def test_counters_are_no_drift() -> None:
    text = _guest().save()
    counted = "".join(
        f"[5:300] {line}\n" if line.startswith("-A") else f"{line}\n" for line in text.splitlines()
    )
    one, other = (read_installed(t, Family.IPV4, Backend.IPTABLES) for t in (text, counted))
    assert state_digest([one]) == state_digest([other])


def test_state_digest_tells_apart_what_could_run_together() -> None:
    def of(objects: dict[str, tuple[str, ...]]) -> str:
        return state_digest([InstalledRules(Family.IPV4, Backend.IPTABLES, objects, {})])

    a = of({"nat/VCN-A": ("x",), "nat/VCN-B": ()})
    assert len({a, of({"nat/VCN-A": (), "nat/VCN-B": ("x",)}), of({"nat/VCN-A": ("x nat/VCN-B 0",)})}) == 3
    held = expected(DOCUMENT)
    assert state_digest([held]) != state_digest([replace(held, shadowed=frozenset({"nat/OUTPUT"}))])
    six = expected(RENDERERS[Backend.NFT](services(2, 2, Family.IPV6)))
    assert state_digest([held, six]) == state_digest([six, held])


def test_nft_has_no_hooks() -> None:
    document = Document(Family.IPV4, Backend.NFT, {"chain a": ("drop",)})
    listed = "table ip vcnode {\n\tchain a {\n\t\tdrop\n\t}\n}\n"
    assert read_installed(listed, Family.IPV4, Backend.NFT) == expected(document)
