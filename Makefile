# Two commands for a newcomer, each of which does all its own set-up:
#   make demo   train agents on Catch by a rule that was discovered, and look at the result
#   make test   lint, type check, all tests
# and make docs, which builds the documentation into build/site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
ADAPTERS := build/adapters

.PHONY: demo test test-wheel test-slow test-adapters docs setup setup-dev setup-docs setup-browser lint clean

demo: setup
	$(BIN)/rulax train --preset demo

test: setup-dev lint
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20
	JAX_PLATFORMS=cpu RULAX_TEST_COMPILE=full $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20 -m 'learning and not slow'

# What a user gets from `pip install`: built, installed into an environment of its own, and used outside of the clone.
test-wheel: setup
	tools/try_wheel.sh $(PYTHON)

test-slow: setup-dev
	JAX_PLATFORMS=cpu RULAX_TEST_COMPILE=full $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 20 -m slow

# Every adapter on its real package: 2.4 GB, more than CI has time for, in an environment of its own, since NetHack's package pins
# an older Gymnasium.
test-adapters: $(ADAPTERS)/.installed
	JAX_PLATFORMS=cpu $(ADAPTERS)/bin/python -m pytest -n $(JOBS) -m 'slow or not slow' tests/envs/adapters tests/envs/test_restart.py

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

# Chromium for the tests of pages, from the system's packages (332 MB); where it is missing, `make test` skips them and says so.
setup-browser:
	command -v chromium > /dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium fonts-dejavu-core; }

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

# EnvPool's ProcGen for Python 3.11 needs the system's Qt 5; without the right to install it ProcGen's tests fail, and say why.
$(ADAPTERS)/.installed: pyproject.toml constraints.txt
	ldconfig -p | grep -q libQt5Gui.so.5 || apt-get install --yes libqt5gui5 libqt5core5a || echo 'no Qt 5: ProcGen cannot be run'
	$(PYTHON) -m venv $(ADAPTERS)
	grep -v '^gymnasium==' constraints.txt > $(ADAPTERS)/constraints.txt
	$(ADAPTERS)/bin/python -m pip install --quiet --constraint $(ADAPTERS)/constraints.txt --editable '.[dev,envpool,craftax,nethack,xland]' bsuite
	touch $@

clean:
	rm -rf build .cache $(VENV) .pytest_cache .ruff_cache .mypy_cache
