# Everything runs in .venv, which is made on first use: Python 3.11 or newer and pip are all it takes.
#
#   make test FULL=1            the slow tests too
#   make test ARGS="-k lease"   more arguments for pytest
#   make test PYTHON=python3.13 the Python to make .venv with

# The first Python on the path that is new enough (a name may be there and still not run).
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

BIN := .venv/bin
READY := .venv/ready
SHELF := tests/distributions/hansard-shelf
FULL_FLAG := $(if $(filter-out 0,$(FULL)),--full)

.DEFAULT_GOAL := help
.PHONY: run test mutants check bench docs clean help

run: $(READY) ## a short demonstration in a temporary store
	@$(BIN)/hansard demo

test: $(READY) ## all tests; FULL=1 for the slow ones too
	@$(BIN)/python -m pytest -n auto --dist=worksteal $(FULL_FLAG) $(ARGS)

mutants: $(READY) ## break the code on purpose, one way after another; ARGS="-k lease" for some
	@$(BIN)/python -m tests.proof.mutants $(ARGS)

check: $(READY) ## lint, format, types, layers, and a test for every rule of the contract
	@$(BIN)/ruff check --quiet
	@report=$$($(BIN)/ruff format --check) || { echo "$$report"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@report=$$($(BIN)/lint-imports --no-cache) || { echo "$$report"; exit 1; }
	@$(BIN)/python scripts/contract.py --check
	@$(BIN)/python scripts/aio.py --check
	@$(BIN)/python scripts/reference.py --check
	@$(BIN)/python scripts/commands.py --check
	@$(BIN)/python scripts/reliability.py --check

bench: $(READY) ## measure, beside the raw limits; FULL=1 for the large stores
	@$(BIN)/python -m benchmarks $(FULL_FLAG) $(ARGS)

docs: $(READY) ## write the generated pages of docs/, and the types of hansard.aio, again
	@$(BIN)/python scripts/contract.py
	@$(BIN)/python scripts/aio.py
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/commands.py
	@$(BIN)/python scripts/reliability.py

clean: ## remove what the others made
	@rm -rf .venv build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1 \t\2/p' Makefile | expand -t 16

# A Python without ensurepip (Debian splits it off) still has pip, which can install into the new .venv.
$(READY): pyproject.toml $(SHELF)/pyproject.toml
	@test -n "$(PYTHON)" || { echo "hansard needs Python 3.11 or newer, and none is on the path." \
		"Name one: make PYTHON=/where/it/is/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hansard needs Python 3.11" \
		"or newer, and $(PYTHON) is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@if "$(PYTHON)" -c 'import ensurepip' 2>/dev/null; then \
		"$(PYTHON)" -m venv --clear .venv; \
	elif "$(PYTHON)" -m pip --version >/dev/null 2>&1; then \
		"$(PYTHON)" -m venv --clear --without-pip .venv && \
		"$(PYTHON)" -m pip --python $(BIN)/python --disable-pip-version-check -qq install pip; \
	else \
		echo "$(PYTHON) has neither ensurepip nor pip, so it cannot make a virtual environment." \
			"On Debian and Ubuntu both come with the package python3-venv; or name another Python:" \
			"make PYTHON=/where/it/is/python3" >&2; exit 1; \
	fi
	@$(BIN)/python -m pip --disable-pip-version-check -qq install -e '.[dev]' -e $(SHELF)
	@touch $@
