# SPDX-License-Identifier: Apache-2.0
"""Listeners for bearer tokens in the configuration."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonkit.config import binding
from daemonkit.config.binding import ConfigError
from tests.cases.agent_files import configuration
from tests.packages import ROOT
from vnagent.config import KIND, TokenListener, VnAgentConfiguration

LISTENER = {
    "tenant": "tenant-1-70b001-acme",
    "port": 10551,
    "issuer": "https://kubernetes.default.svc.cluster.local",
    "audience": "vn-agent",
    "jwksFile": "tokens/tenant-1-70b001-acme.jwks",
    "subjects": ["system:serviceaccount:monitoring:prometheus"],
}
WHERE = Path("/etc/vcnode")


def parsed(*listeners: Any) -> VnAgentConfiguration:
    document = configuration(WHERE, kubelet_port=10250, pods={"source": "kubelet"})
    document |= {"listen": {"port": 10550}, "tokenListeners": list(listeners)}
    return binding.parse(
        json.dumps(document).encode(), VnAgentConfiguration, kind=KIND, source="file", directory=WHERE
    )


def errors(*listeners: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        parsed(*listeners)
    return raised.value.errors


def test_a_listener_is_read() -> None:
    assert parsed(LISTENER).token_listeners == (
        TokenListener(
            "tenant-1-70b001-acme",
            10551,
            "https://kubernetes.default.svc.cluster.local",
            "vn-agent",
            Path("/etc/vcnode/tokens/tenant-1-70b001-acme.jwks"),
            ("system:serviceaccount:monitoring:prometheus",),
        ),
    )
    assert parsed().token_listeners == ()


@pytest.mark.parametrize("key", LISTENER)
def test_each_key_of_a_listener_is_required(key: str) -> None:
    (error,) = errors({name: value for name, value in LISTENER.items() if name != key})
    assert error.startswith(f"tokenListeners[0].{key}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tenant", ""),
        ("issuer", ""),
        ("audience", ""),
        ("port", 0),
        ("port", 65536),
        ("subjects", []),
        ("subjects", [""]),
        ("subjects", "system:serviceaccount:monitoring:prometheus"),
        ("keys", []),
    ],
)
def test_unusable_values_of_a_listener_are_reported(key: str, value: object) -> None:
    (error,) = errors({**LISTENER, key: value})
    assert error.startswith(f"tokenListeners[0].{key}")


@pytest.mark.parametrize("ports", [(10551, 10551), (10550,)])
def test_a_port_is_used_once(ports: tuple[int, ...]) -> None:
    found = errors(*({**LISTENER, "port": port} for port in ports))
    assert found == (f"tokenListeners: port {ports[0]} is used more than once; listen.port counts too",)


def test_listeners_are_bounded() -> None:
    """systemd passes 64 sockets to a process."""
    listeners = [{**LISTENER, "port": 20_000 + number} for number in range(64)]
    assert errors(*listeners) == ("tokenListeners: more than 63",)
    assert len(parsed(*listeners[1:]).token_listeners) == 63


def test_the_readme_shows_a_listener() -> None:
    text = (ROOT / "vnagent" / "README.md").read_text(encoding="utf-8")
    block = text.partition("```yaml\n    tokenListeners:\n")[2].partition("```")[0]
    (listener,) = yaml.safe_load(textwrap.dedent(block))
    assert parsed(listener).token_listeners[0].tenant == "tenant-1-70b001-acme"
