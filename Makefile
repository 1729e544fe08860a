# Every target sets up what it needs: a virtual environment of its own, from pinned versions.
PYTHON ?= python3
# Another interpreter than that of .venv gets an environment of its own: make test PYTHON=python3.13
ifneq ($(PYTHON),python3)
FOUND  := $(shell .ci/find-python $(PYTHON))
ifeq ($(FOUND),)
$(error $(PYTHON) does not start; name an interpreter of Python 3.11 or newer, as in make test PYTHON=/usr/bin/python3.13)
endif
override PYTHON := $(FOUND)
WHICH  := import sys; print("%d.%d" % sys.version_info[:2])
WANTED := $(shell $(PYTHON) -c '$(WHICH)')
VENV   ?= .venv$(addprefix -,$(filter-out $(shell .venv/bin/python -c '$(WHICH)' 2>/dev/null || echo $(WANTED)),$(WANTED)))
endif
VENV   ?= .venv
BIN    := $(VENV)/bin
# One more than cores: a test waits for processes and disks about a quarter of its time.
JOBS   ?= 3
KILLS  ?= 10000
SEED   ?= 1
HOURS  ?= 24

ifneq ($(shell command -v uv 2>/dev/null),)
MAKE_VENV = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL   = uv pip install --quiet --python $(BIN)/python -c constraints.txt
else
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL   = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
endif

# What differs between versions of Python: SQLite, tokens, JSON, processes, and what a newcomer does first.
PORTABLE = tests/newcomer/test_python_projects.py tests/contract tests/cli/test_app.py tests/unit/core tests/unit/resilience/test_store.py

.PHONY: help demo test portable soak check bench format clean
.DEFAULT_GOAL := help

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

$(VENV)/.package: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit("Python 3.11 or newer is needed, this is " + v if sys.version_info < (3, 11) else 0)'
	@$(MAKE_VENV)
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.package
	@$(INSTALL) -e '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.package
	@$(INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.package
	@$(INSTALL) -e '.[bench]'
	@touch $@

demo: $(VENV)/.package  ## the main job: work that survives kill -9
	@$(BIN)/bartack demo

test: $(VENV)/.dev  ## the whole test suite
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

portable: $(VENV)/.test  ## the part of it that depends on the version of Python: make portable PYTHON=python3.13
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PORTABLE)

soak: $(VENV)/.dev  ## for HOURS: KILLS kills from SEED on, every case of the fault matrix, a million entries, examples nobody has tried
	@BARTACK_CHAOS_KILLS=$(KILLS) BARTACK_CHAOS_FIRST=$(SEED) BARTACK_CHAOS_HOURS=$(HOURS) BARTACK_CHAOS_SOAK=1 SOAK=1 \
		$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/crash tests/pipeline tests/unit

check: $(VENV)/.dev  ## formatting, lint, types, layers, dependencies
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports
	@$(BIN)/deptry src

bench: $(VENV)/.bench  ## speed, against the floor and the peers
	@$(BIN)/python -m bench

format: $(VENV)/.dev  ## put the code into its canonical form
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:  ## remove what the targets above have made
	@rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
