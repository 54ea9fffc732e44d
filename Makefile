# Two commands on a fresh machine: `make demo` and `make test`. Each sets up .venv when it has to, and only then.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
EXTRAS := notebooks,corpora,dense,cluster,dev

.PHONY: help demo test test-browser lab bench lint docs gallery clean

help:
	@echo "make demo    set up, then answer questions with every method and show a trace"
	@echo "make test    set up, then run the tests and the notebooks"
	@echo "make test-browser    set up, then open the notebooks in JupyterLab with Chromium"
	@echo "make lab     set up, then open JupyterLab"
	@echo "make bench   set up, then run the benchmarks"
	@echo "make lint    set up, then ruff and mypy"
	@echo "make docs    set up, then write the figures and pictures that README.md and docs/ show"
	@echo "make gallery set up, then make the runs and the executed notebooks of docs/gallery (hours)"
	@echo "make clean   remove what the others made"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"dragin_lab needs Python 3.11 or newer, this is {v.major}.{v.minor}; run make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/dragin-lab demo

test: $(READY)
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --nbmake notebooks/

test-browser: $(READY)
	$(BIN)/python -m pytest tests/browser -rs

lab: $(READY)
	$(BIN)/jupyter lab notebooks/

bench: $(READY)
	$(BIN)/python benchmarks/capture.py
	$(BIN)/python benchmarks/episode.py
	$(BIN)/python benchmarks/batch.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/real_questions.py --out benchmarks/results/real_questions.json
	$(BIN)/python benchmarks/corpus.py --passages 100000
	$(BIN)/python benchmarks/cluster.py --out benchmarks/results/cluster.json
	$(BIN)/python benchmarks/search_clusters.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python -m tools.pages.performance
	$(BIN)/python -m tools.pages.scaling

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m tools.pages.pictures
	$(BIN)/python -m tools.pages.figures
	$(BIN)/python -m tools.pages.performance
	$(BIN)/python -m tools.pages.scaling

gallery: $(READY)
	$(BIN)/python -m tools.pages.runs
	$(BIN)/python -m tools.pages.gallery
	$(BIN)/python -m tools.pages.pictures notebooks

clean:
	rm -rf .venv build dist *.egg-info runs notebooks/runs test-results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
