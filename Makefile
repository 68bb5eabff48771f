# make demo | test | lint | bench: each sets up what it needs in a fresh clone.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find src -name '*.py' -o -name '*.cpp' -o -name '*.hpp' | grep -v ' ')

.PHONY: demo test lint bench clean

demo: $(VENV)/.installed
	$(BIN)/pirate demo --out demo --force

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python benchmarks/kernels.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(PIP) .
	touch $@

$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(PIP) '.[test,lint]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist demo
