# SPDX-License-Identifier: Apache-2.0
# Each target installs what it needs from a bare clone. `make help` lists them.

# A distribution's Python is built with profile guidance and link-time optimisation and is what the
# packages run on; take it where it is new enough.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# The first part of images' names, such as registry.example/vcnode.
REGISTRY ?=
# What packages install: the byte path compiled.
TREE := build/tree
PACKAGES := tenancy ruleset ruletrace daemonkit bridge_api guest_agent kata_bridge kubectl_vc kubeproxy_ext dnsconfig dns_webhook syncer tenant_operator vc_signer vnagent vcnode
SOURCES := $(PACKAGES) devkit vcnode_demo tests packaging setup.py

# CI sets it. A ring that cannot run fails, and so does a case that is not found, or a skip that
# tests/rings/skips.py does not list. A test that failed runs once more, and figures are kept.
REQUIRE_RINGS ?= $(filter-out false 0,$(CI))
pytest = $(BIN)/python -m $(if $(REQUIRE_RINGS),tests.rings pytest $@ $(1) --,pytest)
recorded = $(if $(REQUIRE_RINGS),$(BIN)/python -m tests.rings command $@ --)
require = $(if $(REQUIRE_RINGS),$(1))
# Tests of these rings mostly wait. Each has directories, ports and namespaces of its own.
SIDE_BY_SIDE := $(call require,-n 3 --dist worksteal)

.DEFAULT_GOAL := help
.PHONY: help demo check t test lint unit functional cases compiled lab lab_vm k8s k8s_syncer k8s_operator systemd lab_nodes lab-up lab-down site fuzz soak side_by_side programs guest-kernel
.PHONY: conformance conformance_quick
.PHONY: plugin format examples reference locks packages lint_packages reproducible images deb rpm mutants gate-soak bench bench-vnagent bench-workers bench-attacks bench-neighbours bench-pages bench-services bench-pods bench-syncer bench-syncer-attacks bench-syncer-steps bench-operator bench_operator bench-starts bench_starts bench-losses bench_losses clean

help:  ## list the targets
	@awk -F ':.*## ' '/^#@ /{printf "\n%s\n", substr($$0, 4)} /^[a-z0-9_-]+:.*## /{printf "  %-16s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/runtime: pyproject.toml
	@test -n "$(PYTHON)" || { echo "vcnode needs Python 3.11 or newer with venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

$(VENV)/dev: $(VENV)/runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

#@ Every day
demo: $(VENV)/runtime  ## tenants, one node, the real daemons, no cluster; as root also Services and DNS in guests
	$(BIN)/python -m vcnode demo $(ARGS)

check: lint unit  ## before every commit: format, lint, import layers, types, unit tests

t: $(VENV)/dev  ## one file of tests, or one test: make t F=tests/unit/ruleset/test_delta.py
	$(BIN)/python -m pytest $(F) $(ARGS)

# CI runs the cases once: compiled, as packages install vn-agent.
test: check functional $(if $(REQUIRE_RINGS),k8s side_by_side,cases compiled lab lab_vm k8s k8s_syncer systemd lab_nodes site fuzz soak)  ## before every merge: every ring that this machine can run

# k8s_syncer waits for API servers for half of its time. The other rings fill it, and print after it.
side_by_side:
	@mkdir -p build/rings; $(MAKE) --keep-going lab lab_vm soak systemd lab_nodes site compiled fuzz conformance_quick >build/rings/beside.log 2>&1 & \
	code=0; $(MAKE) k8s_syncer || code=$$?; wait $$! || code=$$?; cat build/rings/beside.log; exit $$code

lab-up: build/packages/SHA256SUMS programs  ## the lab of lab/ on this machine, without Vagrant; needs root
	$(BIN)/python -m tests.lab_nodes up

lab-down: $(VENV)/dev  ## end it
	$(BIN)/python -m tests.lab_nodes down

#@ Rings, from the fastest to the slowest (CONTRIBUTING.md)
lint: $(VENV)/dev  ## format, lint, import layers, types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports
	$(recorded) $(BIN)/mypy --strict $(SOURCES)

unit: $(VENV)/dev  ## no socket, process, clock or root
	$(pytest) tests/unit -n auto --dist worksteal

functional: $(VENV)/dev  ## real TLS, sockets and processes on loopback
	$(pytest) tests/functional $(SIDE_BY_SIDE) $(FUNCTIONAL_ARGS)

cases: $(VENV)/dev  ## requests, Services and synced objects as data; FILES="x.yaml ..." for other files
	$(recorded) $(BIN)/python -m tests.cases $(call require,--failed-only --require-all --rerun) $(FILES)

compiled: $(VENV)/dev  ## the request cases against vn-agent as packages install it
	@if $(BIN)/python packaging/tree.py --check; then \
		$(MAKE) $(TREE)/bin/vn-agent && $(recorded) $(BIN)/python -m tests.cases.compiled $(TREE) --failed-only $(call require,--require-all --rerun); \
	else \
		echo "compiled ring: LEFT OUT, it needs a C compiler and Python's headers"; test -z "$(REQUIRE_RINGS)"; \
	fi

$(TREE)/bin/vn-agent: $(VENV)/dev setup.py packaging/tree.py $(shell find $(PACKAGES) -name '*.py')
	$(BIN)/python packaging/tree.py $(TREE)

lab: $(VENV)/dev  ## network namespaces as guests, real iptables and nft; needs root
	$(pytest) tests/lab $(SIDE_BY_SIDE) $(call require,--require-lab) $(LAB_ARGS)

lab_vm: $(VENV)/dev $(call require,programs guest-kernel)  ## guests with kernels of their own (User-mode Linux); needs root
	$(pytest) tests/lab_vm $(call require,--require-lab-vm --require-lab-vm-names) $(LAB_VM_ARGS)

k8s: $(VENV)/dev $(TREE)/bin/vn-agent $(call require,programs)  ## real kubectl, apiservers, kubelet, containerd; needs root
	$(call pytest,--drawn-seed=--oracle-seed) tests/k8s --ignore=tests/k8s/syncer --ignore=tests/k8s/operator $(call require,--require-k8s) $(K8S_ARGS)

# Both folders use one super cluster, which starts once.
k8s_syncer: $(VENV)/dev $(call require,programs)  ## vc-syncer and vc-operator, tenants and a super cluster that are real; needs root
	$(pytest) tests/k8s/syncer tests/k8s/operator $(call require,--require-k8s) $(K8S_ARGS)

k8s_operator: $(VENV)/dev $(call require,programs)  ## vc-operator's part of it alone; needs root
	$(pytest) tests/k8s/operator $(call require,--require-k8s) $(K8S_ARGS)

systemd: build/packages/SHA256SUMS build/previous/SHA256SUMS $(call require,programs lint_packages)  ## packages on a booted Debian: the README's install section, restarts under load, upgrade, purge; needs root
	$(recorded) $(BIN)/python -m tests.systemd --packages=build/packages --previous=build/previous $(call require,--require)

lab_nodes: build/packages/SHA256SUMS $(call require,programs)  ## lab/: the README's sections on booted Debians, by the scripts that Vagrant runs: two workers, two tenants; needs root
	$(recorded) $(BIN)/python -m tests.lab_nodes check $(call require,--require)

site: $(VENV)/dev  ## the documentation as a site in build/site: no warning, no dead link, each page in a browser
	$(BIN)/python packaging/docs_site.py build/site
	$(recorded) $(BIN)/python -m tests.site build/site $(call require,--require)

fuzz: $(VENV)/dev  ## parsers under a coverage-guided fuzzer; SECONDS=600 for each of TARGETS="head chunked"
	$(recorded) $(BIN)/python -m tests.fuzz $(TARGETS) --seconds=$(or $(SECONDS),3) $(call require,--require)

soak: $(VENV)/dev  ## all daemons under mixed load and faults: MINUTES=3, an hour by hand; needs root
	$(recorded) $(BIN)/python -m tests.soak --minutes $(or $(MINUTES),3) $(call require,--require) $(ARGS)

conformance: $(VENV)/dev  ## Kubernetes' conformance tests through a tenant, and bare; FOCUS=node|quick|REGEX TENANT=0|1; needs root
	python3 tests/k8s/build.py --conformance
	$(BIN)/python -m tests.k8s.conformance --focus='$(FOCUS)' --tenant='$(TENANT)' $(ARGS)

conformance_quick: $(VENV)/dev  ## the selection of conformance tests that CI runs, through a tenant alone; needs root
	python3 tests/k8s/build.py --conformance
	$(recorded) $(BIN)/python -m tests.k8s.conformance --focus=quick --tenant=1 --timeout=900

programs:  ## build the programs of k8s into a cache, or wait for a build that runs
	python3 tests/k8s/build.py

guest-kernel:  ## build the guest kernel of lab_vm into a cache, or wait for a build that runs
	python3 tests/lab_vm/build.py

deb rpm: packages  ## as packages

lint_packages: build/packages/SHA256SUMS  ## lintian, rpmlint and sizes of the packages; a second build has the same bytes
	$(BIN)/python packaging/lint.py build/packages
	umask 077; TZ=Asia/Kathmandu $(BIN)/python packaging/packages.py --tree $(TREE) --out build/again
	cmp build/packages/SHA256SUMS build/again/SHA256SUMS

plugin: $(VENV)/dev  ## the kubectl plugin vc as one file, and its archive and manifest for krew, into dist/
	$(BIN)/python packaging/plugin.py dist

reproducible: $(VENV)/dev  ## build all packages of the last commit twice, in different surroundings: the same bytes
	$(BIN)/python packaging/reproducible.py

packages: build/packages/SHA256SUMS  ## debs and rpms into dist/; the same bytes for one commit
	rm -rf dist
	cp -R build/packages dist

build/packages/SHA256SUMS: $(TREE)/bin/vn-agent $(wildcard packaging/*.py packaging/*.toml packaging/scripts/* packaging/guest/* systemd/* examples/*) docs/reference/commands.md
	$(BIN)/python packaging/packages.py --tree $(TREE) --out build/packages

build/previous/SHA256SUMS: build/packages/SHA256SUMS
	$(BIN)/python packaging/packages.py --tree $(TREE) --out build/previous --version 0.0.9 --compression gzip

images: build/images/digests.json  ## OCI archives of webhook, vc-syncer and vc-operator, and the manifests that name their digests, into dist/
	mkdir -p dist
	cp build/images/*.tar dist
	$(BIN)/python packaging/manifests.py --images build/images --out dist --registry '$(REGISTRY)'

build/images/digests.json: $(TREE)/bin/vn-agent $(wildcard packaging/*.py packaging/*.toml packaging/requirements/*)
	$(BIN)/python packaging/image.py --tree $(TREE) --out build/images --registry '$(REGISTRY)'

#@ What is written for you
format: $(VENV)/dev  ## the sources, in the house format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

examples: $(VENV)/dev  ## examples/ into the READMEs that show them
	$(BIN)/python -m tests.examples

reference: $(VENV)/dev  ## docs/reference, from the code; definitions that are another one with a difference
	$(BIN)/python -m tests.reference

locks: $(VENV)/dev  ## the hashes of what packages and images install: packaging/requirements
	for part in agent services syncer operator webhook tools; do \
		$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 --only-binary :all: \
			--python-platform x86_64-manylinux_2_28 --extra $$part --output-file packaging/requirements/$$part.txt pyproject.toml || exit 1; \
	done
	$(BIN)/python packaging/image.py --lock

#@ Long runs
mutants: $(VENV)/dev  ## remove each cure of tests/mutation/cures in turn: a test must fail; ARGS="NAME ..."
	$(BIN)/python -m tests.mutation $(ARGS)

gate-soak: $(VENV)/dev programs  ## PODS=10000 pods at the start gate while the daemons are killed; needs root
	$(BIN)/python -m pytest tests/k8s/test_gate_under_load.py --require-k8s -s --gate-pods $(or $(PODS),10000) $(ARGS)

bench: bench-vnagent bench-workers bench-attacks bench-neighbours bench-pages bench-services bench-pods bench-syncer bench-syncer-attacks bench-syncer-steps bench-operator  ## all benchmarks

bench-vnagent: $(TREE)/bin/vn-agent  ## vn-agent, as installed, beside a tuned Go reverse proxy
	$(BIN)/python -m tests.bench.vnagent --program $(TREE)/bin/vn-agent $(ARGS)

bench-attacks: $(TREE)/bin/vn-agent  ## latency of one tenant while another attacks vn-agent
	$(BIN)/python -m tests.bench.attacks --program $(TREE)/bin/vn-agent $(ARGS)

bench-pages: $(VENV)/dev  ## what tenants' scrapers cost a node of 250 pods
	$(BIN)/python -m tests.bench.pages $(ARGS)

bench-neighbours: $(TREE)/bin/vn-agent  ## latency of one tenant beside another that uses its limits in full
	$(BIN)/python -m tests.bench.neighbours --program $(TREE)/bin/vn-agent $(ARGS)

bench-workers: $(TREE)/bin/vn-agent  ## what several processes of vn-agent serve beside one
	$(BIN)/python -m tests.bench.workers --program $(TREE)/bin/vn-agent $(ARGS)

bench-services: $(TREE)/bin/vn-agent programs  ## Services in guests, as installed, beside kube-proxy; needs root
	$(BIN)/python -m tests.bench.services --tree $(TREE) $(ARGS)

bench-pods: $(TREE)/bin/vn-agent programs  ## what the start gate adds to a pod's start, on real containerd and kubelet; needs root
	$(BIN)/python -m tests.bench.pods --tree $(TREE) $(ARGS)

bench-syncer-attacks: $(VENV)/dev  ## latency of one tenant while another attacks vc-syncer
	$(BIN)/python -m tests.bench.syncer_attacks $(ARGS)

bench-syncer-steps: $(VENV)/dev  ## the longest steps of vc-syncer with one object of each kind, in ms
	$(BIN)/python -m tests.bench.steps $(ARGS)

bench-operator bench_operator: $(VENV)/dev  ## vc-operator: memory with 10, 100 and 1 000 VirtualClusters, requests of idle ones; ARGS="--only idle,pki"
	$(BIN)/python -m tests.bench.operator $(ARGS)

bench-starts bench_starts: $(VENV)/dev programs  ## times from VirtualClusters to Ready, 1, 2 and 20 at once, and to wake one; needs root; ARGS="--tenants 20"
	$(BIN)/python -m tests.bench.starts $(ARGS)

bench-losses bench_losses: $(VENV)/dev programs  ## p99 of a tenant while its neighbour loses its etcd, API server or controller manager; needs root; ARGS="--rounds 3"
	$(BIN)/python -m tests.bench.losses $(ARGS)

bench-syncer: $(TREE)/bin/vn-agent programs  ## vc-syncer, as installed, between real apiservers; ARGS="--peer CMD" for another too
	$(BIN)/python -m tests.bench.syncer --tree $(TREE) $(ARGS)

clean:  ## remove what the targets made in this tree
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
