# dray: `make demo` shows it, `make test` proves it. Needs Python 3.11 or newer and make.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CONTROL_PLANE ?= sandbox
KUBELET ?=
KEEP ?=
TESTS ?=
SEEDS ?= 500
FIRST ?= 0
K8S ?= 1.36
PARTS ?=
REAL_ONLY ?=
RECORD ?=
BASE ?=
REGISTRY ?=
SHORT ?=
PAIRS ?=
CASES ?=
SEED ?= 1
OPENB ?=
PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3 python,\
	$(if $(shell $(name) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(name))))
PYTHONS ?= $(foreach name,python3.11 python3.12 python3.13 python3.14,\
	$(if $(shell $(name) -c 'print(True)' 2>/dev/null),$(name)))
UV_PYTHON ?= >=3.11

.DEFAULT_GOAL := help
.PHONY: help setup demo docs terminal test test-real test-node test-shells node-packages test-pythons build conformance conformance-all images \
	release packaging-packages e2e-helm e2e-compose chaos explore faults oracle oracle-allocation oracle-nodes proof check format generate clean

help: ## List what make can do
	@echo "make TARGET, where TARGET is"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## Make .venv with the locked versions (uv if it is there, else venv and pip)

$(INSTALLED): requirements.lock pyproject.toml
	@if command -v uv >/dev/null; then \
		set -e; echo "setting up $(VENV) with $$(uv --version)"; \
		test -x $(BIN)/python || uv venv --quiet --python '$(UV_PYTHON)' $(VENV); \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python \
			--require-hashes -r requirements.lock; \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	elif test -n "$(PYTHON)"; then \
		set -e; echo "setting up $(VENV) with $$($(PYTHON) --version) and pip"; \
		test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
			echo "error: $(PYTHON) can't make a venv; install its venv package, or uv"; exit 1; }; \
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--require-hashes -r requirements.lock; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--no-deps --no-build-isolation -e .; \
	else \
		echo "error: no Python 3.11 or newer on PATH; install one, or uv" >&2; exit 1; \
	fi
	@touch $@

demo: setup ## Run the quick start and print each pod's timeline (KEEP=1, RECORD=1, CONTROL_PLANE=real, KUBELET=real)
	@$(BIN)/dray demo $(if $(KUBELET),--kubelet $(KUBELET),--control-plane $(CONTROL_PLANE)) $(if $(KEEP),--keep) $(if $(RECORD),--record)

docs: setup ## Build the documentation into dist/site, and check its links
	$(BIN)/python -m tools.site

terminal: setup ## Record docs/terminal.svg, the run of a terminal in the README, again (needs kubectl)
	@$(BIN)/python -m tools.terminal

test: setup ## Run every test that needs no Go (TESTS=... narrows it)
	$(BIN)/pytest -q -n 2 --dist loadscope -m "not real and not packaging and not shells" $(TESTS)

test-real: setup ## Run further tests on the real control plane, built once in 4 min (K8S=1.37, TESTS=...)
	DRAY_KUBERNETES=$(K8S) $(BIN)/python -m dray_sandbox.controlplane build
	DRAY_KUBERNETES=$(K8S) $(BIN)/pytest -q -m "real and not node" \
		$(or $(TESTS),--ignore=tests/contract --ignore=tests/conformance --ignore=tests/native_groups)

test-node: setup ## Run tests on real kubelets with containerd and runc, as root (SHORT=1, K8S=1.37, TESTS=...)
	DRAY_KUBERNETES=$(K8S) $(BIN)/python -m dray_sandbox.node build
	DRAY_KUBERNETES=$(K8S) $(BIN)/pytest -q -m "node$(if $(SHORT), and not long)" $(or $(TESTS),tests/real_node)

test-shells: setup ## Complete commands in bash, zsh and fish; installs those that are missing, as root
	@$(BIN)/python -m tools.shell_packages
	$(BIN)/pytest -q -m shells tests/shells

node-packages: setup ## Install what real kubelets need with apt-get, as root
	@$(BIN)/python -m tools.node_packages

test-pythons: ## Read objects at their limits on every Python here (PYTHONS="python3.12 python3.13")
	@set -e; for python in $(PYTHONS); do \
		folder=.cache/$$(basename $$python); \
		$(MAKE) --no-print-directory setup VENV=$$folder PYTHON=$$python UV_PYTHON=$$python; \
		$$folder/bin/python --version; \
		$$folder/bin/pytest -q tests/unit/api/test_json_codec.py tests/unit/kube/test_long_lists.py \
			tests/unit/kube/test_api_watch_faults.py; \
	done

build: setup ## Build once what the real control plane and the oracles need, 10 min (K8S=1.34,1.37)
	@PYTHONPATH=$(CURDIR) $(BIN)/python tests/conformance/run_builds.py --k8s $(K8S)

conformance: setup ## Prove on real Kubernetes what dray says about it (K8S=1.34,1.37 PARTS=... RECORD=1)
	@PYTHONPATH=$(CURDIR) $(BIN)/python tests/conformance/run.py --k8s $(K8S) $(if $(PARTS),--parts $(PARTS)) \
		$(if $(PAIRS),--pairs $(PAIRS)) $(if $(CASES),--cases $(CASES)) \
		$(if $(REAL_ONLY),--real-only) $(if $(RECORD),--record)

conformance-all: K8S := all
conformance-all: conformance ## The same on every minor, 1.34 to 1.37

release: setup ## Wheel, sdist, images, chart, SBOMs and checksums into dist (BASE=..., REGISTRY=...)
	$(BIN)/python -m tools.release $(if $(BASE),--base $(BASE)) $(if $(REGISTRY),--registry $(REGISTRY))

packaging-packages: setup ## Install what images and their tests need with apt-get, as root
	@$(BIN)/python -m tools.images.packages

images: setup ## Build the images with docker, podman or buildah (BASE=image or debian, REGISTRY=...)
	$(BIN)/python -m tools.images $(if $(BASE),--base $(BASE)) $(if $(REGISTRY),--registry $(REGISTRY))
	$(if $(REGISTRY),,$(BIN)/pytest -q -m packaging tests/packaging/images)

e2e-helm: setup ## Install, upgrade and uninstall the chart on real kubelets, as root (SHORT=1, K8S=, TESTS=)
	$(BIN)/python -m tools.images --base debian --keep
	DRAY_KUBERNETES=$(K8S) $(BIN)/python -m dray_sandbox.node build
	DRAY_KUBERNETES=$(K8S) $(BIN)/pytest -q -m "packaging$(if $(SHORT), and not long)" \
		$(or $(TESTS),tests/packaging/helm $(if $(SHORT),,tests/packaging/alerts))

e2e-compose: setup ## Bring deploy/compose up by podman-compose with images made here, as root (SHORT=1)
	$(BIN)/python -m tools.images --base debian --keep
	$(if $(SHORT),,DRAY_KUBERNETES=$(K8S) $(BIN)/python -m dray_sandbox.controlplane build)
	$(BIN)/pytest -q -m "packaging$(if $(SHORT), and not long)" tests/packaging/compose

chaos: setup ## Simulate all services under seeded faults on virtual time (SEEDS=500, FIRST=0)
	DRAY_CHAOS_SEEDS=$(SEEDS) DRAY_CHAOS_FIRST=$(FIRST) \
		$(BIN)/pytest -q -n 2 --dist load -x tests/chaos

explore: setup ## Search every interleaving of small worlds, about seven minutes (CONTRIBUTING says which)
	@$(BIN)/python -m tools.model_checker

faults: SEEDS := 20
faults: setup ## Kill and stop processes of whole stacks (SEEDS=20, FIRST=0, CONTROL_PLANE=real)
	DRAY_FAULTS_SEEDS=$(SEEDS) DRAY_FAULTS_FIRST=$(FIRST) \
		$(BIN)/pytest -q -s -m "$(if $(filter real,$(CONTROL_PLANE)),real,not real)" tests/faults/test_seeds.py

oracle: setup ## Compare selectors with Kubernetes' own compiler (K8S=1.34,1.37 PAIRS= SEED= GATES=)
	@$(BIN)/python tests/conformance/oracle/compare.py --k8s $(K8S) $(if $(PAIRS),--pairs $(PAIRS)) \
		--seed $(SEED) --feature-gates "$(GATES)"

oracle-allocation: CASES := 10000
oracle-allocation: setup ## Compare allocations with Kubernetes' own allocator (K8S=1.34,1.37 CASES= SEED=)
	@$(BIN)/python tests/conformance/oracle/compare_allocations.py --k8s $(K8S) --cases $(CASES) \
		--seed $(SEED)

oracle-nodes: CASES := 1500
oracle-nodes: setup ## Compare the node fit with kube-scheduler's plugins (K8S=1.34,1.37 CASES= SEED=)
	@$(BIN)/python tests/conformance/oracle/compare_nodes.py --k8s $(K8S) --cases $(CASES) \
		--seed $(SEED)

proof: setup ## Prove everything at full size, hours; goes on where it was stopped (PARTS=... OPENB=folder)
	@$(BIN)/python -m tools.proof $(if $(PARTS),--parts $(PARTS)) $(if $(OPENB),--openb $(OPENB))

check: setup ## Lint, types, architecture, names, generated files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m tools.test_types
	$(BIN)/lint-imports
	$(BIN)/python -m tools.names
	$(BIN)/python -m tools.unused_modules
	$(BIN)/python -m tools.generate --check
	$(BIN)/python tests/contract/page.py --check
	$(BIN)/python tests/conformance/run_page.py --check
	$(BIN)/python -m tools.site

format: setup ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: setup ## Write generated files again: schemas, messages.md, contracts.md, custom resources, gRPC code
	$(BIN)/python -m tools.generate
	$(BIN)/python tests/contract/page.py
	$(BIN)/python tests/conformance/run_page.py

clean: ## Remove what make made here (not the user's cache)
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
