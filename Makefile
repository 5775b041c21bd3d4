# Each target makes .venv when it is missing; `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Threads that wait for work sleep: test workers and other programs need the cores.
export OMP_WAIT_POLICY := passive

.PHONY: demo test test-ray test-speed test-rounding test-portable test-lowest test-newest test-locked test-pythons test-scripts audit lint bench fuzz kill docs docs-serve clean

# What depends most on other packages: file formats, every method, the images, the commands.
FAST := tests/test_imports.py tests/metrics tests/methods/test_contract.py \
  tests/methods/test_detector.py tests/methods/test_estimator.py tests/images/test_digits.py \
  tests/images/test_folders.py tests/images/test_preprocess.py tests/cli/test_cli.py
# What the extras bring: the service, ONNX, Parquet, HEIF, networks of timm and of Hugging Face.
OF_EXTRAS := tests/guard/test_serve.py tests/guard/test_guarded_file.py tests/guard/test_export.py \
  tests/images/test_stored.py tests/images/test_formats.py tests/networks/test_sources.py \
  tests/networks/test_hugging_face.py
EXTRAS := torch parquet serve onnx heif timm hf
COMMA := ,
ALL_EXTRAS := $(subst $() ,$(COMMA),$(EXTRAS))
LOWEST := .venv-lowest
NEWEST := .venv-newest
LOCKED := .venv-locked
TOOLS := pytest pytest-timeout pytest-xdist hypothesis httpx
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --only-binary=:all: -c constraints.txt

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch]'
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,timm]'
	touch $@

# a guard, its check page, then the paper's methods and auto; METHODS=all compares all methods
METHODS ?= paper
demo: $(VENV)/.ready
	$(BIN)/python examples/demo.py --out out/demo --methods $(METHODS)

test: lint test-rounding
	$(BIN)/pytest -n 2

# The engine of Ray, on two nodes on this machine, and an S3 server: apart from the rest, since Ray is large and takes
# both cores for itself. In an environment on top of the other one, whose versions stay as they are.
RAY := .venv-ray
$(RAY)/.ready: $(VENV)/.ready-dev
	$(BIN)/python -m venv $(RAY)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > $$($(RAY)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/below.pth
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'ray>=2.54' pyarrow s3fs 'moto[server]'
	touch $@

test-ray: $(RAY)/.ready
	OMP_NUM_THREADS=1 PYTHONPATH=src $(RAY)/bin/python -m pytest tests/engines

# A loop that takes twice its time fails: see benches/limits.toml.
test-speed: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python benches/guard.py

# What other processors, batch sizes and thread counts may compute, simulated (tests/rounding.py). The whole suite:
# make test-rounding SEED=2 ROUNDING=
SEED ?= 1
ROUNDING ?= tests/features/test_bank.py tests/images/test_identity.py tests/guard/test_live.py \
  tests/methods/test_contract.py tests/methods/test_detector.py tests/methods/test_estimator.py
test-rounding: $(VENV)/.ready-dev
	$(BIN)/pytest -n 2 --rounding $(SEED) $(ROUNDING)

# What older processors compute: the same tests without the wide instructions of this one. No choice, no file and no
# kept figure may hang on the last bits in which they differ.
PLAIN := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
test-portable: $(VENV)/.ready-dev
	$(PLAIN) $(BIN)/pytest -n 2 tests/features/test_bank.py tests/images/test_identity.py \
	  tests/methods/test_contract.py tests/docs/test_docs.py::test_measurements_are_those_of_this_code

# The lowest versions that pyproject.toml allows; torch and torchvision are those of constraints.txt.
# Old packages call what newer ones call deprecated: that is between them.
test-lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(PYTHON) scripts/lowest.py $(EXTRAS) > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python $(PIP_INSTALL) -c $(LOWEST)/lowest.txt -e '.[$(ALL_EXTRAS)]' $(TOOLS)
	$(LOWEST)/bin/python -m pytest -n 2 -W ignore::DeprecationWarning $(FAST) $(OF_EXTRAS)

test-newest:
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python $(PIP_INSTALL) --upgrade --upgrade-strategy eager -e '.[torch,parquet,serve,onnx,heif]' $(TOOLS)
	$(NEWEST)/bin/python -m pytest -n 2 $(FAST)

# The packages of requirements/test.lock and no others, by their hashes (Linux, Python 3.11); not a part of `make test`,
# since an index that builds its own wheels has other hashes.
test-locked:
	test -x $(LOCKED)/bin/python || $(PYTHON) -m venv $(LOCKED)
	$(LOCKED)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/test.lock
	$(LOCKED)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch torchvision
	$(LOCKED)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(LOCKED)/bin/pip check
	$(LOCKED)/bin/python -m pytest -n 2 $(FAST) $(OF_EXTRAS)

# Known advisories: those of the newest versions fail, those of the lowest are printed.
audit: $(VENV)/.ready-dev
	$(BIN)/pip install --quiet --disable-pip-version-check pip-audit
	if test -x $(LOWEST)/bin/python; then $(BIN)/python scripts/audit.py $(LOWEST)/bin/python --report; fi
	if test -x $(NEWEST)/bin/python; then $(BIN)/python scripts/audit.py $(NEWEST)/bin/python; fi

# Every script and every benchmark, once, on very little.
test-scripts: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -m scripts tests/scripts

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vermin --target=3.11- --violations --no-tips --quiet src
	$(BIN)/mypy
	$(BIN)/mypy --platform win32
	$(BIN)/mypy --platform darwin

# What needs no torch, in environments without it, on this and other versions of Python.
test-pythons:
	scripts/test_pythons.sh

bench: $(VENV)/.ready-dev
	$(BIN)/python benches/speed.py
	$(BIN)/python benches/memory.py
	$(BIN)/python benches/guard.py
	$(BIN)/python benches/rivals.py --quick
	$(BIN)/python benches/startup.py

# Damaged files of every kind: FUZZ="--minutes 30 --format guard --seed 1" asks for more.
FUZZ ?= --minutes 2
fuzz: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/run.py $(FUZZ)

# 200 kills at seeded moments, a full disk, a closed folder and the like: what is run again must be bit-equal.
kill: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/kill.py

docs: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the site: out/site/index.html"

# The same on http://127.0.0.1:8000, where several readers or a phone emulator may look at it.
PORT ?= 8000
docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory out/site $(PORT)

clean:
	rm -rf $(VENV) $(RAY) $(LOWEST) $(NEWEST) $(LOCKED) .venv-3.* out build dist
