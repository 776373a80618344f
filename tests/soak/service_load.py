# SPDX-License-Identifier: Apache-2.0
"""The load of one tenant on kubeproxy-ext, kata-bridge and the agent in its guest: a Service that moves.

Both tenants' Services have the same address, and so have their endpoints. The rules in a guest outlive the
daemons: requests may be answered by the former endpoint for a while, and never fail.
"""

from itertools import cycle

from tests.soak.answers import OK
from tests.soak.load import LoadThread
from tests.soak.node import SoakNode, SoakTenant
from tests.soak.recorder import LeakError, Recorder
from tests.waiting import holds_within
from vcnode_demo.services_environment import SUPER_IPS, TENANTS_IP, TenantPods
from vcnode_demo.vpc import has_program

# Longer than any fault, on a busy machine.
LATE_S = 180.0
_REST_S = 0.5
_PORT = 80
_REQUESTS = 5
_FILTERS = (("nft", "list", "ruleset"), ("iptables-save",))


class ServiceLoad:
    """One thread of one tenant, which alone speaks to the tenant's guest."""

    def __init__(self, node: SoakNode, tenant: SoakTenant, recorder: Recorder) -> None:
        self._environment = node.services
        self._vpc: TenantPods = node.services.tenants[tenant.name]
        self._name = tenant.name
        self._others = [ip for name, ip in SUPER_IPS.items() if name != tenant.name]
        self._recorder = recorder
        self._shops = cycle(("shop-2", "shop-1"))

    def thread(self) -> LoadThread:
        """The Service exists from now on."""
        self._environment.put_service(self._name, ("shop-1",))
        # Until its first rules are there, nothing answers.
        self._recorder.ask("first rules", self._name, lambda: self._moved_to("shop-1", is_first=True))
        name = f"Service of {self._name}"
        return LoadThread(name, self._recorder, self.round, least_rest_s=_REST_S, is_patient=True)

    def round(self) -> bool:
        """The Service moves to its other endpoint; then all of the guest's rules are looked at."""
        shop = next(self._shops)
        self._environment.put_endpoints(self._name, (shop,))
        return (
            self._recorder.ask("moved Service", self._name, lambda: self._moved_to(shop))
            and all(
                self._recorder.ask("Service", self._name, lambda: self._answered(shop))
                for _ in range(_REQUESTS)
            )
            and self._recorder.ask("rules", self._name, self._rules)
        )

    def _moved_to(self, shop: str, *, is_first: bool = False) -> str:
        failure = ""

        def try_request() -> bool:
            nonlocal failure
            body, failure = self._get(TENANTS_IP)
            return body == self._body(shop) or bool(failure and not is_first)

        if not holds_within(try_request, LATE_S):
            return f"not moved within {LATE_S:.0f} s"
        return failure or OK

    def _answered(self, shop: str) -> str:
        """By both addresses of its own, and by no other's."""
        for address in (TENANTS_IP, SUPER_IPS[self._name]):
            body, failure = self._get(address)
            if failure or body != self._body(shop):
                return f"{address}: {failure or body}"
        for address in self._others:
            answer = self._vpc.front.get(address, _PORT)
            if not answer.error:
                raise LeakError(f"another tenant's address {address} answered {answer.body!r}")
        return OK

    def _get(self, address: str) -> tuple[str, str]:
        """The body, or how it failed. Raises LeakError for an answer of another tenant's."""
        answer = self._vpc.front.get(address, _PORT)
        if not answer.error and not answer.body.startswith(f"{self._name}'s "):
            raise LeakError(f"{address} answered {answer.body!r}")
        return answer.body, answer.error

    def _body(self, shop: str) -> str:
        return f"{self._name}'s {shop}"

    def _rules(self) -> str:
        """The guest's packet filters name its own Service alone."""
        text = "\n".join(self._vpc.front.run(*words) for words in _FILTERS if has_program(words[0]))
        found = [ip for ip in self._others if ip in text]
        if found:
            raise LeakError(f"the guest's rules have {found} of another tenant's")
        return OK if SUPER_IPS[self._name] in text else "its own Service is not in the guest's rules"
