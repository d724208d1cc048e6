# The README's two commands. Each sets up everything on a fresh machine; the second time they start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check pictures bench clean
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/saccade demo

test: check
	@$(BIN)/pytest -n auto

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

pictures: $(READY)  ## draw the pictures of docs/scores again
	@$(BIN)/python docs/pictures.py

bench: $(READY)
	@$(BIN)/saccade bench attention

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "saccade needs Python 3.11 or newer; '$(PYTHON)' is older (choose another: make PYTHON=python3.12)"; exit 2; }
	@echo "Setting up $(VENV) (once; a few minutes) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist
