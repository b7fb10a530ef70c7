# make install | demo | test | quick | check | fuzz | bench | docs | extension: each sets up what it needs in .venv, with the standard venv and pip.
PYTHON ?= python3
BIN := .venv/bin
FUZZ_SECONDS ?= 60

.PHONY: install demo test quick check fuzz bench docs extension

install: .venv/.installed
	@echo "divscore is installed in .venv; now run: . .venv/bin/activate"
demo: .venv/.installed
	@$(BIN)/divscore demo
test: .venv/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal
quick: .venv/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not browser and not cluster"
check: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
fuzz: .venv/.installed-dev
	$(BIN)/python tests/fuzz.py --seconds $(FUZZ_SECONDS)
bench: .venv/.installed-bench
	$(BIN)/python benchmarks/run.py
docs: .venv/.installed-docs
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open site/index.html; to search in it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"
extension: # needs Python; and npm for the checks of types and of the packed files
	$(PYTHON) tools/extension/pack.py --checks

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("divscore needs Python 3.11 or later, this is %s; try make PYTHON=python3.12 install" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[web]'
	@touch $@
.venv/.installed-dev: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
.venv/.installed-bench: .venv/.installed-dev benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt
	@touch $@
.venv/.installed-docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@
