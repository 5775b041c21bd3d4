# Each target makes .venv when it is missing; `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-portable lint bench docs clean

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,timm]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/oodshape bench digits --out out/demo

test: lint test-portable
	$(BIN)/pytest -n 2

# What other processors compute: the same tests without the wide instructions of this one. No choice, no file and no
# kept figure may hang on the last bits in which they differ.
PLAIN := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
test-portable: $(VENV)/.ready-dev
	$(PLAIN) $(BIN)/pytest tests/test_golden.py tests/features/test_bank.py tests/images/test_identity.py \
	  tests/docs/test_docs.py::test_measurements_are_those_of_this_code

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-dev
	$(BIN)/python benches/speed.py
	$(BIN)/python benches/memory.py
	$(BIN)/python benches/rivals.py

docs: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the site: out/site/index.html"

clean:
	rm -rf $(VENV) out build dist
