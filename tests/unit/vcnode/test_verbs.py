# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from vcnode import status, tenant, verbs
from vcnode.__main__ import main


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Loads the module of `tenant` anew."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "vnagent" or name == "vcnode.tenant":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("vcnode.tenant")
    return monkeypatch


def test_a_verb_is_its_module() -> None:
    assert (verbs.load("status"), verbs.load("tenant")) == (status, tenant)


def test_verb_without_its_package_names_it(
    without: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without.setitem(sys.modules, "vnagent", None)
    assert main(["tenant", "add", "vc-a", "--ca", "ca.crt"]) == 3
    assert "vcnode tenant needs the package vcnode-agent: install it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "needs the package vcnode-agent" in capsys.readouterr().out


def test_other_missing_modules_are_errors(without: pytest.MonkeyPatch) -> None:
    without.setitem(sys.modules, "tenancy.document", None)
    with pytest.raises(ModuleNotFoundError):
        verbs.load("tenant")
