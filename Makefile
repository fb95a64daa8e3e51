# Two commands for a newcomer, each of which does all its own set-up:
#   make demo   train an agent on Catch and look at the result
#   make test   lint, type check, all tests
# and make docs, which builds the documentation into build/site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test test-slow docs setup setup-dev setup-docs lint clean

demo: setup
	$(BIN)/rulax train --preset demo

test: setup-dev lint
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20
	JAX_PLATFORMS=cpu RULAX_TEST_COMPILE=full $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20 -m 'learning and not slow'

test-slow: setup-dev
	JAX_PLATFORMS=cpu RULAX_TEST_COMPILE=full $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20 -m slow

# --strict: a warning fails the build. `python -m`, because an extension of the site lives in tools/.
docs: setup-docs
	$(BIN)/python -m zensical build --strict --clean
	@echo "open build/site/index.html; with search: $(BIN)/python -m http.server -d build/site"

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev
setup-docs: $(VENV)/.installed-docs

# The stamps make a second call start at once; they are renewed when the project's own requirements change.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Rulax needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[gymnax,gymnasium]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Only what builds pages: no JAX.
$(VENV)/.installed-docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(VENV)/docs.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement $(VENV)/docs.txt
	touch $@

clean:
	rm -rf build .cache $(VENV) .pytest_cache .ruff_cache .mypy_cache
