# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.config import binding as configs
from daemonkit.config.binding import ConfigError
from kata_bridge.channels.stock.policy_file import read_policy
from kata_bridge.config import KIND, CriConfig, KataBridgeConfiguration, NriConfig, load
from kata_bridge.sandboxes.core.runtimes import HandlerChannels
from kata_bridge.start_gate.core.decision import Need, Policy, PolicyRule

HEAD = "apiVersion: vcnode.io/v1alpha1\nkind: KataBridgeConfiguration\nstateDirectory: /s\n"


def parsed(text: str) -> KataBridgeConfiguration:
    return configs.parse(f"{HEAD}{text}".encode(), KataBridgeConfiguration, kind=KIND, source="x")


def test_a_minimal_configuration_has_defaults() -> None:
    config = parsed("sandboxes: {nri: {}, cri: {}}\n")
    assert (config.sandboxes.nri, config.sandboxes.cri) == (NriConfig(), CriConfig())
    assert config.listen.socket == Path("/run/vcnode/kata-bridge.sock")
    assert (config.listen.gid, config.listen.uids) == (None, frozenset())
    assert config.channel_settings().handlers == (HandlerChannels(("kata*",), ("agent", "stock")),)
    assert config.agent is None


def test_groups_and_users_are_resolved_on_this_node() -> None:
    config = parsed("sandboxes: {cri: {}}\nlisten: {group: root, users: [root]}\n")
    assert (config.listen.gid, config.listen.uids) == (0, frozenset({0}))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sandboxes: {}\n", "sandboxes.nri: give at least one of nri, cri and directory"),
        ("sandboxes: {nri: {index: '5'}}\n", "sandboxes.nri.index: expected two digits, got '5'"),
        ("sandboxes: {nri: {name: a b}}\n", "sandboxes.nri.name: expected letters"),
        ("sandboxes: {cri: {}}\nagent: {}\n", "agent.address: give at least one of"),
        ("sandboxes: {cri: {}}\nagent: {vsockPort: 0}\n", "agent.vsockPort: expected an integer between 1"),
        ("sandboxes: {cri: {}}\nstatus: {address: 10.0.0.1}\n", "status.address: expected a loopback"),
        ("sandboxes: {cri: {}}\nagent: {socket: /%s}\n" % ("s" * 107), "agent.socket: more than 107 bytes"),
        ("sandboxes: {cri: {}}\nruntimes: [{handlers: [], channels: []}]\n", "handlers: at least one"),
        ("sandboxes: {cri: {}}\nlisten: {group: nobody-has-this}\n", "listen.group: unknown group"),
        ("sandboxes: {cri: {}}\nlisten: {users: [nobody-has-this]}\n", "listen.users: unknown user"),
        ("sandboxes: {cri: {}}\nlisten: {socket: /%s}\n" % ("s" * 200), "listen.socket: more than 107 bytes"),
        ("sandboxes: {cri: {}}\nruntimes: [{handlers: [x], channels: [agent, agent]}]\n", "channels: "),
        (
            "sandboxes: {cri: {}}\nruntimes: [{handlers: [x], channels: [y]}]\n",
            r"channels\[0\]: expected one of",
        ),
        ("sandboxes: {cri: {}}\nstock: {policyFyle: x}\n", "stock.policyFyle: unknown key"),
    ],
)
def test_configuration_errors_name_the_key(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert caught.match(why)


@pytest.mark.parametrize(
    ("directory", "why"),
    [("state", "expected an absolute path"), ("/" + "s" * 100, r"too long, .*/run/bridge\.sock has more")],
)
def test_check_config_reports_an_unusable_state_directory(directory: str, why: str) -> None:
    text = HEAD.replace("/s\n", f"{directory}\n") + "sandboxes: {cri: {}}\n"
    with pytest.raises(ConfigError, match=f"stateDirectory: {why}"):
        configs.parse(text.encode(), KataBridgeConfiguration, kind=KIND, source="x")


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    text = "stock: {policyFile: p.rego}\ndrift: {checkSeconds: often}\n"
    text += "agent: {port: -1, address: here}\ngate: {}\n"
    file.write_text(f"{HEAD}sandboxes: {{cri: {{}}}}\n{text}")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert [error.partition(": ")[0] for error in caught.value.errors] == [
        "agent.port",
        "agent.address",
        "stock.policyFile",
        "drift.checkSeconds",
        "gate",
    ]


def test_the_stock_policy_is_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}sandboxes: {{cri: {{}}}}\nstock: {{policyFile: p.rego}}\n")
    with pytest.raises(ConfigError, match=r"stock\.policyFile: .*p\.rego: No such file"):
        load(file)
    (tmp_path / "p.rego").write_text("package agent_policy\n")
    assert read_policy(load(file).channel_settings().agent_policy_file) == ("package agent_policy\n", "")


def test_without_a_start_gate_nothing_is_blocked() -> None:
    assert parsed("sandboxes: {nri: {}}\n").gate is None


def test_a_start_gate_enforces_by_default() -> None:
    gate = parsed("sandboxes: {nri: {}}\ngate: {}\n").gate
    assert gate is not None
    assert (gate.policy, gate.needs) == (Policy.ENFORCE, (Need.RULES, Need.RESOLVER))
    assert gate.directory == Path("/run/vcnode/pods")
    assert gate.super_cluster is None


def test_namespaces_have_start_gate_policies() -> None:
    text = "gate: {policy: warn, needs: [rules], namespaces: [{namespaces: [vc-a-*], policy: off}]}\n"
    gate = parsed(f"sandboxes: {{nri: {{}}}}\n{text}").gate
    assert gate is not None
    assert gate.settings().rules == (PolicyRule(("vc-a-*",), Policy.OFF),)
    assert (gate.policy, gate.needs) == (Policy.WARN, (Need.RULES,))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sandboxes: {cri: {}}\ngate: {}\n", "gate: needs sandboxes.nri"),
        ("sandboxes: {nri: {}}\ngate: {needs: [rules, rules]}\n", "gate.needs: the same need twice"),
        ("sandboxes: {nri: {}}\ngate: {policy: maybe}\n", "gate.policy: expected"),
        (
            "sandboxes: {nri: {}}\ngate: {namespaces: [{namespaces: [], policy: warn}]}\n",
            r"gate.namespaces.*namespaces: at least one",
        ),
        (
            "sandboxes: {nri: {}}\ngate: {superCluster: {kubeconfigFile: /k, nodeName: A_B}}\n",
            "gate.superCluster.nodeName: expected the name of a node",
        ),
    ],
)
def test_errors_of_a_start_gate_configuration(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert caught.match(why)
