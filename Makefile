# turnkeep's commands. `make run` and `make test` set up what they need in this checkout (.venv), once.
# Needed on the machine: Python 3.11 or newer, make, git. No Docker, no AWS account, no key.
#
#   make run PORT=8600 AWS_PORT=8601     the local stack on other ports
#   make test ARGS="-k paused"           some of the tests
#   make test PYTHON=python3.13          with a Python of your choice

.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first Python on PATH that is new enough. Each is tried, because a pyenv shim may name one that is not there.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BOOTSTRAP_FLAGS :=
else
BOOTSTRAP_FLAGS := --this-python
endif

VENV ?= .venv
BIN := $(VENV)/bin
SAM_VENV ?= .venv-sam
CHECKOV_VENV ?= .venv-checkov
SAM := $(SAM_VENV)/bin/sam
WORKERS ?= auto
ARGS ?=
FUZZ_S ?= 60
PORT ?= 3000
AWS_PORT ?= 5000
CONSOLE_PORT ?= 3001
LAMBDA_PORT ?= 3002
GATEWAY_PORT ?= 3003
export PORT AWS_PORT CONSOLE_PORT LAMBDA_PORT GATEWAY_PORT
export SAM_CLI_TELEMETRY := 0
BUILD_LOG := .aws-sam/build.log
# sam's makefile builder runs `make` with this in a copy of the layer's folder.
export TURNKEEP_PIP := $(CURDIR)/$(BIN)/python -m pip
# Where Lambda's Python may be, beside python3.13 on PATH: it makes the layers' byte code.
LAMBDA_VENV ?= .venv-3.13
export TURNKEEP_LAMBDA_PYTHON ?= $(abspath $(BIN)/python) $(abspath $(wildcard $(HOME)/.pyenv/versions/3.13.*/bin/python)) \
  $(abspath $(LAMBDA_VENV)/bin/python)

# make load: how long, how many people at once, which share of processes is killed, and where a page of it is written.
LOAD_VENV := .venv-load
LOAD_S ?= 60
LOAD_USERS ?= 5
LOAD_KILLS ?= 0.15
LOAD_SEED ?= 1
LOAD_PAGE ?=
export LOAD_S LOAD_USERS LOAD_KILLS LOAD_SEED LOAD_PAGE

TYPED := layers/turnkeep/turnkeep layers/agent functions local tools $(wildcard load/*.py)

.PHONY: help setup setup-run setup-sam setup-lambda setup-load built run test test-exhaustive sam-local \
  test-containers demo token lint format types imports template build parameters api check checkov bench \
  bench-durability bench-start costs chaos load openapi lock screenshots clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set up ---------------------------------------------------------------------------------------------------------

bootstrap = $(if $(PYTHON),$(PYTHON),$(error turnkeep needs Python 3.11 or newer on PATH; install one, or name it: \
  make $(firstword $(MAKECMDGOALS)) PYTHON=/path/to/python3)) tools/bootstrap.py $(BOOTSTRAP_FLAGS)

setup:  ## installs everything for tests and development into .venv
	@$(bootstrap) --venv $(VENV) dev

setup-run:
	@$(bootstrap) --venv $(VENV) run

setup-sam:
	@$(bootstrap) --venv $(SAM_VENV) sam

setup-load:
	@$(bootstrap) --venv $(LOAD_VENV) load

# An environment of Lambda's Python beside one of another; where there is no such Python, measuring goes without.
setup-lambda: setup
	@for python in $(TURNKEEP_LAMBDA_PYTHON) python3.13; do \
	  "$$python" -Ic 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null || continue; \
	  [ "$$python" = "$(abspath $(BIN)/python)" ] || \
	    "$$python" tools/bootstrap.py --this-python --venv $(LAMBDA_VENV) dev || exit 1; \
	  break; \
	done

# --- use ------------------------------------------------------------------------------------------------------------

run: setup-run  ## starts the local stack and its page (PORT, AWS_PORT, CONSOLE_PORT); Ctrl-C stops it
	@exec $(BIN)/python -m local

test: setup  ## runs the tests (ARGS="-k name" for some)
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not exhaustive and not containers" $(ARGS)

test-exhaustive: setup  ## kills and stops real processes at every point of a turn; some minutes, and .ci/run does it
	@$(BIN)/python -m pytest -n $(WORKERS) -m exhaustive tests/process

sam-local: setup-run built  ## the same behind sam local, every invocation in a container of its own (needs Docker)
	@exec $(BIN)/python -m local.sam

test-containers: setup built  ## a conversation, and every event of events/, in containers (needs Docker)
	@$(BIN)/python -m pytest -m containers $(ARGS) tests/containers

demo: setup-run  ## plays a customer's conversation against the running stack and prints it
	@exec $(BIN)/python -m local.demo

token: setup-run  ## prints a token for the local stack (USER=alice TENANT=acme ROLES=supervisor)
	@exec $(BIN)/python -m local.token "$(or $(USER),alice)" \
	  $(if $(TENANT),--tenant "$(TENANT)") $(if $(ROLES),--roles "$(ROLES)")

# --- check ----------------------------------------------------------------------------------------------------------

lint: setup  ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup  ## ruff: puts rules and format right
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup  ## mypy, strict
	@$(BIN)/mypy $(TYPED)

imports: setup  ## which layer may import which
	@PYTHONPATH=layers/turnkeep $(BIN)/lint-imports

template: setup setup-sam  ## cfn-lint with the house rules, and sam validate
	@$(BIN)/cfn-lint
	@$(SAM) validate --lint

built: setup-sam
	@mkdir -p $(dir $(BUILD_LOG))
	@$(SAM) build > $(BUILD_LOG) 2>&1 || { cat $(BUILD_LOG); exit 1; }

build: setup built  ## sam build: what `sam deploy` uploads
	@$(BIN)/python tools/check_build.py

checkov:  ## checkov's opinion of the template, offline; installs 260 MB, once
	@$(bootstrap) --venv $(CHECKOV_VENV) checkov
	@$(CHECKOV_VENV)/bin/checkov

parameters: setup-run  ## what `sam deploy --guided` asks for, and what each answer means
	@$(BIN)/python tools/parameters.py

api: setup  ## the API keeps to docs/openapi.json, and that file to the code (FUZZ_S=60)
	@PYTHONPATH=layers/turnkeep:layers/agent $(BIN)/python -m tools.openapi --check
	@PYTHONPATH=layers/turnkeep:layers/agent $(BIN)/python -m tools.fuzz_api --seconds $(FUZZ_S)

load: setup-run setup-load  ## many people at once and some kills: nothing lost or doubled? (LOAD_S, LOAD_USERS, LOAD_PAGE)
	@$(BIN)/python -m load

check: lint types imports template build api test  ## what CI runs, but for Docker, the load and the killing of processes

# --- make files -----------------------------------------------------------------------------------------------------

# The other libraries pin what they like, so they get an environment of their own; without it only turnkeep is measured.
bench: setup  ## measures what a turn costs, other libraries beside it; writes docs/performance.md
	@test -x .venv-bench/bin/python || { $(PYTHON) -m venv .venv-bench \
	  && .venv-bench/bin/python -m pip install -q --disable-pip-version-check -r bench/peers.txt; } || true
	@$(BIN)/python -m bench

bench-durability: setup  ## measures what each mode of durability costs; writes the table in docs/durability.md
	@PYTHONPATH=layers/turnkeep $(BIN)/python -m bench.durability

bench-start: setup-lambda build  ## measures how long functions take to start; writes its part of docs/performance.md
	@$(BIN)/python -m bench.start

costs: setup  ## counts what turns and questions cost and what that is in money; writes its part of docs/operations.md
	@$(BIN)/python -m bench.costs

chaos: setup  ## kills processes and loses calls on a local stack, some minutes; writes docs/chaos.md
	@$(BIN)/python -m bench.chaos

openapi: setup  ## writes docs/openapi.json from the code
	@PYTHONPATH=layers/turnkeep:layers/agent $(BIN)/python -m tools.openapi

lock: setup  ## resolves the requirement files anew (UPGRADE=1 takes newer versions)
	@$(BIN)/python tools/lock.py $(if $(UPGRADE),--upgrade)

screenshots: setup  ## takes the README's pictures of the console (needs Chromium)
	@$(BIN)/python -m tools.screenshots

clean:  ## removes what was built and installed here
	rm -rf .venv .venv-* .aws-sam .turnkeep .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
