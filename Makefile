# Everything works from a fresh machine with Python 3.11 or later, pip and make: no root, nothing outside this folder.
# The wheel is built, installed into .venv and tested, never the source tree. What it and the tools depend on is
# installed in the versions of requirements-dev.lock.
# Another interpreter: make PYTHON=python3.13. Fewer test processes: make WORKERS=2. With the assembler's tests, which
# fetch NVIDIA's compiler: make test EXTRAS=dev,docs,assembler. Without the lock file, the newest versions: make LOCK=.

PYTHON  ?= python3
# One more than there are cores: tests wait for browsers, compilers and clusters.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
EXTRAS  ?= dev,docs
LOCK    ?= requirements-dev.lock

BIN       := .venv/bin
VENV      := .venv/created
INSTALLED := .venv/installed
KERNELS   := .venv/kernels
OBJECTS   := src/warpfrag/tensorcore/kernels/objects
# Folders are listed too: their time changes when a file is removed.
SOURCES   := $(shell find src -name __pycache__ -prune -o -print) $(wildcard pyproject.toml README.md LICENSE) $(LOCK)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: run test format lint types bench docs dist lock clean help

run: $(INSTALLED)  ## a tour of some seconds
	@$(BIN)/python examples/tour.py

# Kernels and tests are compiled once, beside mypy: test processes that start without them would each compile their own.
test: lint  ## lint, check types, run the tests against the installed wheel
	@$(MAKE) --no-print-directory -j 2 types $(KERNELS)
	@PYTHONWARNDEFAULTENCODING=1 $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal

format: $(INSTALLED)  ## format the code and mend what ruff can mend
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lint: $(INSTALLED)  ## ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(INSTALLED)  ## mypy --strict over src
	@$(BIN)/mypy

bench: $(INSTALLED)  ## run the benchmarks
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/ptx.py

docs: $(INSTALLED)  ## build the documentation
	@$(BIN)/python docs/build.py

# Object code for every processor is made from what is installed, and is there for the wheel only: a build from a clone has
# none, and one that is older than the kernels would not be used.
dist: $(INSTALLED)  ## build what a release uploads: sdist, and the wheel with compiled kernels
	@rm -rf dist $(OBJECTS)
	@$(BIN)/python -m build --sdist
	@$(BIN)/python -m warpfrag.tensorcore.kernels.build_objects $(OBJECTS)
	@$(BIN)/python -m warpfrag.ptx.compiler.build_loops $(OBJECTS)
	@$(BIN)/python -m build --wheel
	@rm -rf $(OBJECTS)

# One file for every platform and every Python from 3.11 on. It has no hashes: pip refuses them in constraints of a local wheel.
lock: $(VENV)  ## write requirements-dev.lock anew, with the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet uv==0.13.7
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url \
	    --extra dev --extra docs --extra assembler --annotation-style line --custom-compile-command "make lock" \
	    --output-file requirements-dev.lock pyproject.toml

clean:  ## remove everything make has made
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## *' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

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
	@echo "compiling the kernels"
	@$(BIN)/python -m warpfrag.tensorcore.kernels > $@
	@$(BIN)/pytest --collect-only -qq > /dev/null || true  # what is wrong with a test is said when it is run
