# Everything works on a fresh machine with Python 3.11 or later, pip and make, without root and inside this folder.
# Tests run on the wheel, which is built and installed into .venv with the versions of requirements-dev.lock.
# Another interpreter: make PYTHON=python3.13. Fewer test processes: make WORKERS=1. With NVIDIA's assembler:
# make test-all EXTRAS=dev,docs,assembler. With the newest versions instead of the lock file: make LOCK=.

PYTHON  ?= python3
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
EXTRAS  ?= dev,docs
LOCK    ?= requirements-dev.lock

BIN       := .venv/bin
VENV      := .venv/created
INSTALLED := .venv/installed
KERNELS   := .venv/kernels
LOOPS     := .venv/loops
OBJECTS   := src/warpfrag/tensorcore/kernels/objects
# Folders are listed too: their time changes when a file is removed.
SOURCES   := $(shell find src -name __pycache__ -prune -o -print) $(wildcard pyproject.toml README.md LICENSE) $(LOCK)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: run test test-all format lint types bench docs dist lock clean help

run: $(INSTALLED)  ## a short tour (a few seconds)
	@$(BIN)/python examples/tour.py

PYTEST := PYTHONWARNDEFAULTENCODING=1 $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal

# Machine code is compiled once and shared: test processes that start without it would each compile their own.
test: lint  ## lint, check types, and run the tests that are not slow against the installed wheel
	@$(MAKE) --no-print-directory -j 2 $(KERNELS) types $(LOOPS)
	@$(PYTEST) -m "not slow"

test-all: test  ## the same, then run the slow tests
	@$(PYTEST) -m slow

format: $(INSTALLED)  ## format the code and fix what ruff can fix
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lint: $(INSTALLED)  ## ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(INSTALLED)  ## mypy --strict over src and tools
	@$(BIN)/mypy

bench: $(INSTALLED)  ## run the benchmarks
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/ptx.py

docs: $(INSTALLED)  ## build the documentation
	@$(BIN)/python docs/build.py

# The wheel of a release contains object code for every processor; a wheel that is built from a clone does not.
dist: $(INSTALLED)  ## build what a release uploads: sdist, and the wheel with compiled kernels
	@rm -rf dist $(OBJECTS)
	@$(BIN)/python -m build --sdist
	@$(BIN)/python -m warpfrag.tensorcore.kernels.build_objects $(OBJECTS)
	@$(BIN)/python -m warpfrag.machine.jit.build_loops $(OBJECTS)
	@$(BIN)/python -m build --wheel
	@rm -rf $(OBJECTS)

# One file for every platform and every Python since 3.11, without hashes: pip rejects them in constraints of a local wheel.
lock: $(VENV)  ## update requirements-dev.lock to the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet uv==0.13.7
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url \
	    --extra dev --extra docs --extra assembler --annotation-style line --custom-compile-command "make lock" \
	    --output-file requirements-dev.lock pyproject.toml

clean:  ## remove everything that make creates
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

# Debian splits ensurepip off Python: then the pip of $(PYTHON) puts a pip into the new environment.
$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "warpfrag needs Python 3.11 or later, and '$(PYTHON)' is not: try make PYTHON=python3.11" >&2; exit 1; }
	@echo "making .venv"
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv --clear .venv; else \
	    $(PYTHON) -m venv --clear --without-pip .venv && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; fi
	@touch $@

$(INSTALLED): $(SOURCES) | $(VENV)
	@echo "building and installing the wheel"
	@rm -rf build/wheel
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@$(BIN)/python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@$(BIN)/python -m pip install --quiet $(LOCK:%=--constraint=%) "$$(echo build/wheel/*.whl)[$(EXTRAS)]"
	@touch $@

$(KERNELS): $(INSTALLED)
	@echo "compiling the tensor-core kernels"
	@$(BIN)/python -m warpfrag.tensorcore.kernels > $@

$(LOOPS): $(INSTALLED)
	@$(BIN)/python -m warpfrag.machine.jit > $@
