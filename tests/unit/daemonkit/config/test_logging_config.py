# SPDX-License-Identifier: Apache-2.0
import io
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from daemonkit import logs
from daemonkit.config import binding
from daemonkit.config.binding import ConfigError
from daemonkit.config.logging_config import LoggingConfig, apply_logging

KIND = "DaemonConfiguration"


@dataclass(frozen=True, slots=True)
class DaemonConfiguration:
    logging: LoggingConfig = field(default_factory=LoggingConfig)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.setup(stream=stream, clock=lambda: 0)
    yield stream
    logs.reset()


def parse(text: str) -> DaemonConfiguration:
    head = f"apiVersion: vcnode.io/v1alpha1\nkind: {KIND}\n"
    return binding.parse((head + text).encode(), DaemonConfiguration, kind=KIND, source="a.yaml")


@pytest.mark.parametrize(
    ("text", "config", "is_json"),
    [
        ("", LoggingConfig("info", "auto"), None),
        ("logging: {level: debug}", LoggingConfig("debug", "auto"), None),
        ("logging: {level: error, format: text}", LoggingConfig("error", "text"), False),
        ("logging: {format: json}", LoggingConfig("info", "json"), True),
    ],
)
def test_level_and_form_are_read(text: str, config: LoggingConfig, is_json: bool | None) -> None:
    assert parse(text).logging == config
    assert config.is_json is is_json


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("level: INFO", "logging.level: expected one of debug, info, warning, error, got 'INFO'"),
        ("level: 3", "logging.level: expected one of debug, info, warning, error, got 3; put it in quotes"),
        ("format: xml", "logging.format: expected one of auto, json, text, got 'xml'"),
        ("levels: info", "logging.levels: unknown key; did you mean 'level'?"),
    ],
)
def test_other_values_are_errors(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"logging: {{{text}}}")
    assert caught.value.errors == (error,)


def test_a_configuration_with_a_log_is_applied(log: io.StringIO) -> None:
    apply_logging(DaemonConfiguration(LoggingConfig("debug", "text")))
    logs.get("x").debug("m")
    apply_logging(DaemonConfiguration(LoggingConfig("info", "json")))
    logs.get("x").debug("m")
    logs.get("x").info("n")
    text, json = log.getvalue().splitlines()
    assert text == '1970-01-01T00:00:00.000Z DEBUG x "m"'
    assert json == '{"time":"1970-01-01T00:00:00.000Z","level":"info","logger":"x","message":"n"}'


def test_another_configuration_changes_nothing(log: io.StringIO) -> None:
    logs.set_level("warning")
    apply_logging("a text")
    assert (logs.level_name(), logs.configured_level()) == ("warning", "info")
