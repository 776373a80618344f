# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenant release` without a daemon; tests/functional/vnagent/test_removals.py has one."""

import argparse
import datetime as dt
import io
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from vcnode import daemons, tenant_release
from vcnode.output import Output
from vcnode.terminal import Terminal


def test_retained_tenants_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"tenants": {"retained": {"tenants": ["a"], "clientLists": ["b"]}}}
    status = {"daemon": "vn-agent", "sources": sources}
    monkeypatch.setattr(daemons, "ask", lambda _where, _path, kind, _daemon: msgspec.convert(status, kind))
    out = io.StringIO()
    terminal = Terminal(out, io.StringIO(), dt.datetime(2027, 3, 1, tzinfo=dt.UTC))
    arguments = argparse.Namespace(socket=Path("/s"), yes=False)
    assert tenant_release.run(arguments, terminal) == 1
    assert out.getvalue().splitlines()[:2] == [
        "tenant a: retained, missing from its source",
        "vn-agent-clients of tenant b: retained, missing from its source",
    ]
    out = io.StringIO()
    assert tenant_release.run(arguments, replace(terminal, out=out, output=Output.JSON)) == 1
    assert json.loads(out.getvalue()) == {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "RetainedTenantList",
        "isReleased": False,
        "items": [{"tenant": "a"}],
        "clientLists": ["b"],
    }
