# Two commands to start with: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench docs pictures screenshots clean

help: ## list every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.package ## install into .venv and run the demo (writes report.html)
	$(BIN)/fedskew demo

test: $(VENV)/.tools ## install with the test tools and run every test (ARGS="-k emd" narrows them)
	@# Federations wait most of the time, for processes of their own: they go first wherever both want a core.
	@$(BIN)/python -m pytest -m network $(ARGS) > $(VENV)/network.log 2>&1 & network=$$!; \
	nice -n 10 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not network" $(ARGS); rest=$$?; \
	wait $$network; network=$$?; cat $(VENV)/network.log; \
	case $$rest,$$network in 0,0|0,5|5,0) ;; *) exit 1;; esac  # 5: no test of that kind is meant

check: $(VENV)/.tools ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.tools ## format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.tools ## measure speed and memory (about ten minutes; several GB of memory)
	$(BIN)/python -m benchmarks.partition
	$(BIN)/python -m benchmarks.engine_cpu
	$(BIN)/fedskew bench

pictures: $(VENV)/.package ## remake the README's picture from a real demo and print its table
	$(BIN)/python scripts/pictures.py

screenshots: $(VENV)/.tools ## remake the dashboard's pictures from real runs (needs chromium; about two minutes)
	$(BIN)/python scripts/screenshots.py

docs: $(VENV)/.package ## write docs/performance.md from the committed figures
	$(BIN)/python scripts/performance.py

clean: ## remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.tools: $(VENV)/.package
	$(PIP) -e '.[test,check,web,flower,cluster]'
	@touch $@
