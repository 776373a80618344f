# SPDX-License-Identifier: Apache-2.0
"""What the product has, it uses: each public function, class and method has a caller that is no test."""

import ast

from tests import wiring
from tests.packages import ROOT

SOURCES = {
    "a": "def used(): ...\ndef unused(): ...\ndef recursive(): recursive()\ndef _private(): ...\n",
    "b": "from a import used\nfrom c import imported_alone\nimport c as d\nused()\nd.by_module()\n",
    "c": "def imported_alone(): ...\ndef by_module(): ...\nclass Kind: ...\n"
    "def of(value: 'Kind | None'): ...\n",
    "e": "from pkg import verb\nhandlers = [verb]\nfor each in handlers:\n    each.add()\n",
    "pkg.verb": "def add(): ...\ndef other(): ...\n",
}


def test_what_nobody_calls_is_found() -> None:
    trees = {name: (ROOT / f"{name}.py", ast.parse(text)) for name, text in SOURCES.items()}
    assert [each.rpartition(" ")[2] for each in wiring.unwired(trees)] == [
        *("unused", "recursive", "imported_alone", "of", "other")
    ]


def test_each_public_definition_has_a_caller_in_the_product() -> None:
    assert wiring.unwired() == []
