# Every target works on a fresh machine with Python 3.11+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test fix bench e2e soak docs gpu lock clean

$(STAMP): requirements/dev.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(STAMP)          ## start the service with throwaway certificates and show it what pods people write
	$(BIN)/python -m tests.demo

test: $(STAMP)          ## every check: format, lint, types, layers, tests with coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --cov --cov-report=
	$(BIN)/coverage report --include='webhook/policy/*' --fail-under=95
	$(BIN)/coverage report --fail-under=85

fix: $(STAMP)           ## format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)         ## figures, never a test
	$(BIN)/python -m tests.bench

e2e: $(STAMP)           ## against a real control plane; needs KUBEBUILDER_ASSETS
	E2E_REQUIRED=1 $(BIN)/python -m pytest tests/e2e -m 'not soak'

soak: $(STAMP)          ## overload, hostile clients, ten minutes of load; the control plane's part needs KUBEBUILDER_ASSETS
	$(BIN)/python -m tests.soak
	E2E_REQUIRED=1 $(BIN)/python -m pytest tests/e2e -m soak

docs: $(STAMP)          ## make the pages that come from the code
	$(BIN)/python -m docs.generate

gpu: $(STAMP)           ## against a real GPU with MPS
	$(BIN)/python -m pytest tests/gpu

lock: $(STAMP)          ## resolve dependencies anew, with hashes
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate pyproject.toml --upgrade -o requirements/runtime.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --group dev --extra otel pyproject.toml --upgrade -o requirements/dev.lock

clean:
	rm -rf $(VENV) build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
