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
# Two more than cores: tests wait for processes, disks and real programs about a third of their time.
JOBS   ?= 4
KILLS  ?= 10000
SEED   ?= 1
HOURS  ?= 24
# The npm package of claude-agent-acp; the versions of all other programs are in constraints.txt.
ACP    ?= 0.99.1
# The npm package that checks the types of the modules of pages.
TSC    ?= 7.0.2

ifneq ($(shell command -v uv 2>/dev/null),)
MAKE_VENV = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL_ANY = uv pip install --quiet --python $(BIN)/python
else
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL_ANY = $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif
INSTALL = $(INSTALL_ANY) -c constraints.txt

# What differs between versions of Python: SQLite, tokens, JSON, processes, and what a newcomer does first.
PORTABLE = tests/newcomer/test_python_projects.py tests/contract tests/cli/test_app.py tests/unit/core tests/unit/resilience/test_store.py

CHECKS = .check-pyright .check-mypy .check-lint .check-layers

.PHONY: $(CHECKS) help demo test portable soak check realcli realcli-newest typescript browser docs pictures bench format clean
.DEFAULT_GOAL := help

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

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

# Real agent programs, 0.8 GB. What cannot be installed is tried again next time, and is an error where it is required.
$(VENV)/.realcli: $(VENV)/.dev .ci/realcli
	@if .ci/realcli $(VENV) $(ACP) $(INSTALL); then touch $@; else test -z "$$BARTACK_REQUIRE_REALCLI"; fi

$(VENV)/.typescript: $(VENV)/.dev .ci/typescript
	@if .ci/typescript $(VENV) $(TSC); then touch $@; else test -z "$$BARTACK_REQUIRE_TYPESCRIPT"; fi

$(VENV)/.docs: $(VENV)/.package
	@$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.package
	@$(INSTALL) -e '.[bench]'
	@touch $@

demo: $(VENV)/.package  ## the main job: work that survives kill -9
	@$(BIN)/bartack demo

test: $(VENV)/.realcli $(VENV)/.typescript  ## the whole test suite
	@.ci/suite $(BIN)/python -n $(JOBS) --dist worksteal

portable: $(VENV)/.test  ## the part of it that depends on the version of Python: make portable PYTHON=python3.13
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PORTABLE)

soak: $(VENV)/.realcli  ## for HOURS: KILLS kills from SEED on, every case of the fault matrix, a million entries, examples that have not been tried before
	@BARTACK_CHAOS_KILLS=$(KILLS) BARTACK_CHAOS_FIRST=$(SEED) BARTACK_CHAOS_HOURS=$(HOURS) BARTACK_CHAOS_SOAK=1 SOAK=1 BARTACK_TEST_COLD=1 \
		$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/crash tests/pipeline tests/unit tests/language tests/cli tests/security tests/examples tests/realcli

check: $(VENV)/.dev  ## formatting, lint, types, layers, dependencies
	@$(MAKE) --no-print-directory --output-sync=target -j2 $(CHECKS)

# The longest first: two at a time.
.check-pyright:
	@$(BIN)/basedpyright
.check-mypy:
	@$(BIN)/mypy
.check-lint:
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
.check-layers:
	@$(BIN)/lint-imports
	@$(BIN)/deptry src

realcli: $(VENV)/.realcli  ## install the real agent programs (Claude Code, Codex, claude-agent-acp) that tests start

realcli-newest:  ## run the tests with real agent programs against the newest versions of these
	@$(MAKE) --no-print-directory VENV=.venv-newest .venv-newest/.dev
	@.ci/realcli .venv-newest latest $(subst $(VENV)/,.venv-newest/,$(INSTALL_ANY)) --upgrade
	@BARTACK_REQUIRE_REALCLI=1 .venv-newest/bin/python -m pytest -n 2 tests/realcli

typescript: $(VENV)/.typescript  ## install the compiler that checks the types of the modules of pages

browser:  ## install the browser that tests drive (Debian's chromium), where there is none
	@.ci/browser

docs: $(VENV)/.docs  ## the pages as a site, in build/site: fails on a dead link or a page that no navigation leads to
	@$(BIN)/python docs/site.py

pictures: $(VENV)/.dev  ## the pictures of README and docs, anew: the demo in a terminal, the page in a browser, plots of results
	@$(BIN)/python docs/pictures.py

bench: $(VENV)/.bench  ## speed, against the floor and the peers
	@$(BIN)/python -m bench

format: $(VENV)/.dev  ## put the code into its canonical form
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:  ## remove what the targets above have made
	@rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
