# SPDX-License-Identifier: Apache-2.0
"""kubectl 1.34's own texts."""

import pytest

from kubectl_vc.core.faults import FaultReason, RequestFault, fault_of, sentence

_LOG = 'E1130 08:27:04.2 25244 memcache.go:265] "Unhandled Error" err="connection refused"\n'


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            'Error from server (NotFound): virtualclusters.tenancy.x-k8s.io "acme" not found\n',
            RequestFault(FaultReason.NOT_FOUND, 'virtualclusters.tenancy.x-k8s.io "acme" not found'),
        ),
        (
            'Warning: old\nError from server (Forbidden): User "ada" cannot get\nresource\n',
            RequestFault(FaultReason.FORBIDDEN, 'User "ada" cannot get resource'),
        ),
        (
            "Error from server (InternalError): boom\n",
            RequestFault(FaultReason.OTHER, "boom"),
        ),
        (
            'error: the server doesn\'t have a resource type "virtualclusters"\n',
            RequestFault(
                FaultReason.NO_RESOURCE, 'error: the server doesn\'t have a resource type "virtualclusters"'
            ),
        ),
        (
            'error: context "super" does not exist\n',
            RequestFault(FaultReason.NO_CONTEXT, 'error: context "super" does not exist'),
        ),
        (
            f"{_LOG}{_LOG}The connection to the server x:6443 was refused - did you specify the right host"
            f" or port?\n",
            RequestFault(
                FaultReason.UNREACHABLE,
                "The connection to the server x:6443 was refused - did you specify the right host or port?",
            ),
        ),
        (
            "error: You must be logged in to the server (Unauthorized)\n",
            RequestFault(
                FaultReason.UNAUTHORIZED, "error: You must be logged in to the server (Unauthorized)"
            ),
        ),
        (
            'The VirtualCluster "a" is invalid: spec.serviceCidr: Invalid value: "x": no CIDR\n',
            RequestFault(
                FaultReason.INVALID,
                'The VirtualCluster "a" is invalid: spec.serviceCidr: Invalid value: "x": no CIDR',
            ),
        ),
        (
            'The VirtualCluster "a" is invalid: metadata.uid: Invalid value: "7": field is immutable\n',
            RequestFault(
                FaultReason.CONFLICT,
                'The VirtualCluster "a" is invalid: metadata.uid: Invalid value: "7": field is immutable',
            ),
        ),
        ("", RequestFault(FaultReason.OTHER, "kubectl failed without a message")),
    ],
)
def test_faults(printed: str, expected: RequestFault) -> None:
    assert fault_of(printed) == expected


def test_long_messages_are_cut() -> None:
    assert len(fault_of("x" * 100_000).message) == 2000


def test_a_sentence_has_object_hop_and_remedy() -> None:
    fault = RequestFault(FaultReason.CONFLICT, "the object has been modified")
    assert sentence("change VirtualCluster a/b", fault) == (
        "cannot change VirtualCluster a/b: the super cluster: Conflict: the object has been modified;"
        " another client changed it at the same time: try again"
    )


@pytest.mark.parametrize("reason", list(FaultReason))
def test_each_reason_has_a_remedy(reason: FaultReason) -> None:
    assert sentence("x", RequestFault(reason, "m")).partition("; ")[2]
