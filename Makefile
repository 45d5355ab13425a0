# Everything works on a fresh machine with Python 3.11 or later, pip and make, without root and inside this folder.
# Tests run on the wheel, which is built and installed into .venv with the versions of requirements-dev.lock. Building it
# compiles the C files (hatch_build.py). `make run` installs the package's dependencies; `make test` also installs those of
# the tests. To use another interpreter: make PYTHON=python3.13. To run fewer test processes: make WORKERS=1. To install
# NVIDIA's assembler: make test-all EXTRAS=dev,docs,newest-assembler. To ignore the lock file: make LOCK=.

PYTHON  ?= python3
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
EXTRAS  ?= dev,docs
LOCK    ?= requirements-dev.lock

BIN       := .venv/bin
VENV      := .venv/created
INSTALLED := .venv/installed
DEVELOPED := .venv/developed
# The list includes folders, whose modification time changes when a file is removed.
SOURCES   := $(shell find src -name __pycache__ -prune -o -name "libwarpfrag.*" -o -name library.json -o -path "*/device/lib*" -o -name stand_ins.json -o -print) \
             $(wildcard pyproject.toml hatch_build.py README.md LICENSE) $(LOCK)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: run test test-all slow format lint types bench docs dist lock clean help

run: $(INSTALLED)  ## a short tour (a few seconds)
	@$(BIN)/python examples/tour.py

PYTEST := PYTHONWARNDEFAULTENCODING=1 $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal

test: lint types  ## lint, check types, and run the tests that are not slow against the installed wheel
	@$(PYTEST) -m "not slow"

test-all: test slow  ## the same as test, then run the slow tests

slow: $(INSTALLED)
	@$(PYTEST) -m slow

format: $(DEVELOPED)  ## format the code and fix what ruff can fix
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lint: $(DEVELOPED)  ## ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(DEVELOPED)  ## mypy --strict over src and tools
	@$(BIN)/mypy

bench: $(DEVELOPED)  ## run the benchmarks
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/ptx.py

docs: $(DEVELOPED)  ## build the documentation
	@$(BIN)/python docs/build.py

# zig cross-compiles, so any machine can build for every target.
dist: $(DEVELOPED)  ## build what a release uploads: sdist, a wheel for each platform, and a portable one
	@rm -rf dist
	@$(BIN)/python -m build --sdist
	@for target in x86_64-linux aarch64-linux portable; do WARPFRAG_BUILD=$$target $(BIN)/python -m build --wheel; done

# One file for every platform and every Python since 3.11. It has no hashes, because pip rejects them in the constraints
# for a local wheel.
lock: $(VENV)  ## update requirements-dev.lock to the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet uv==0.13.7
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url \
	    --extra dev --extra docs --extra newest-assembler --annotation-style line --custom-compile-command "make lock" \
	    --output-file requirements-dev.lock pyproject.toml

clean:  ## remove everything that make creates
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

# Debian packages ensurepip separately. If it is missing, the pip of $(PYTHON) installs pip into the new environment.
$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "warpfrag needs Python 3.11 or later, and '$(PYTHON)' is not: try make PYTHON=python3.11" >&2; exit 1; }
	@echo "creating .venv"
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv --clear .venv; else \
	    $(PYTHON) -m venv --clear --without-pip .venv && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; fi
	@touch $@

WHEEL := build/wheel/*.whl

$(INSTALLED): $(SOURCES) | $(VENV)
	@echo "compiling the kernels and building the wheel"
	@rm -rf build/wheel
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@echo "installing the wheel and the packages that it needs"
	@$(BIN)/python -m pip install --quiet --no-deps --force-reinstall $(WHEEL)
	@$(BIN)/python -m pip install $(LOCK:%=--constraint=%) $(WHEEL)
	@touch $@

$(DEVELOPED): $(INSTALLED)
	@echo "installing the packages for tests, lint and documentation"
	@$(BIN)/python -m pip install $(LOCK:%=--constraint=%) "$$(echo $(WHEEL))[$(EXTRAS)]"
	@touch $@
