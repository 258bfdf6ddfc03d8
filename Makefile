# Everything starts here. It needs Python 3.11 or newer and make, and sets up the rest by itself.

SHELL := /bin/sh
.DEFAULT_GOAL := help
PORT ?= 8000
HOST ?= 127.0.0.1
DEMO ?= 1
# More arguments for pytest: make test ARGS="tests/ledger -k seal"
ARGS ?=
JOBS ?= 2

PY := .venv/bin/python
RUNTIME := .venv/.runtime
DEV := .venv/.dev
PACKAGES := $(wildcard config edge workspaces ledger connectors approvals recovery demo bench)

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

up: $(RUNTIME) ## Set everything up and run it (PORT=8000, DEMO=0 for an empty desk)
	@exec $(PY) -m config.processes --with-parent --port $(PORT) --host $(HOST) --demo $(DEMO)

test: $(DEV) ## Run every test, browser tests included (ARGS="-k word")
	@exec $(PY) -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

long: $(DEV) ## Tests that take long: whole deployments, recorded weeks, every page under axe
	@exec $(PY) -m pytest -n $(JOBS) --dist loadgroup -m long $(ARGS)

check: $(DEV) ## What CI asks before the tests: format, rules, types, floors, migrations, templates
	@exec $(PY) .ci/check $(PACKAGES)

bench: $(DEV) ## Measure, print one line of JSON, write bench/latest.json
	@exec $(PY) -m bench

chaos: $(DEV) ## Every fault of the list, seeded, against the invariants (ARGS="--seed 7")
	@exec $(PY) -m pytest tests/crash -m chaos $(ARGS)

adapters: $(DEV) ## An agent of each framework, MCP, and the oldest Node against the gate, each in an environment that is kept
	@exec $(PY) -m pytest tests/adapters tests/mcp tests/contract -n $(JOBS) -m "adapters or not adapters" $(ARGS)

failclosed: $(DEV) ## Each framework's gate, and ours, against every fault; writes docs/failclosed.md
	@AMENDS_FAILCLOSED_WRITES=1 exec $(PY) -m pytest tests/failclosed -n $(JOBS) -m "failclosed or not failclosed" $(ARGS)

earnest: $(DEV) ## Drills of a deployment: installed elsewhere, several machines, backups carried away (docs/running.md)
	@exec $(PY) -m pytest tests/config tests/examples tests/crash -m earnest $(ARGS)

mutants: $(DEV) ## Dangerous changes to the code, each of which a test must notice (ARGS="--room gate")
	@exec $(PY) -m tests.mutants --jobs $(JOBS) $(ARGS)

sbom: $(RUNTIME) ## What is in a desk, package by package: sbom.json (CycloneDX)
	@test -x .local/sbom/bin/cyclonedx-py || { $(PY) -m venv .local/sbom && .local/sbom/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0; }
	@.local/sbom/bin/cyclonedx-py requirements requirements/runtime.lock --pyproject pyproject.toml --short-PURLs --output-reproducible -o sbom.json

client: $(DEV) ## The TypeScript client as a desk hands it out: sdk-js/dist out of sdk-js/src
	@rm -rf sdk-js/dist && cp -R "$$($(PY) -c 'from tests import npm; print(npm.compiled())')" sdk-js/dist

verifier: $(DEV) ## The page that people save to check a record: static/verifier.html out of sdk-js/verifier
	@exec "$$($(PY) -c 'from tests import npm; print(npm.NODE)')" --no-warnings sdk-js/verifier/make.ts

screenshots: $(DEV) ## Pictures of the pages, from the running demo's own data
	@exec $(PY) -m tests.browser.screenshots

$(RUNTIME): requirements/runtime.lock config/local/bootstrap.sh
	@sh config/local/bootstrap.sh requirements/runtime.lock $@

$(DEV): requirements/dev.lock config/local/bootstrap.sh
	@sh config/local/bootstrap.sh requirements/dev.lock $@

.PHONY: help up test long check adapters failclosed earnest bench chaos mutants sbom client screenshots verifier
