# The README's two commands. Each sets up everything on a fresh machine; the second time they start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NODE := .node/.ready
CLIENTS := libretranslate@1.0.1 libretranslate-ts@0.5.12 translate@3.1.0 axe-core@4.10.3

.PHONY: demo test check docs pictures pictures-page licences bench clean
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/saccade demo

test: check $(NODE)
	@$(if $(SHUFFLE),SACCADE_TEST_SHUFFLE=$(SHUFFLE)) $(BIN)/pytest -n auto --dist worksteal  # neighbours share what a file of tests makes

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

pictures: $(READY)  ## draw the pictures of docs/scores and docs/additive.md again
	@$(BIN)/python docs/pictures.py
	@$(BIN)/python docs/pictures_additive.py

PAGE_RUNS ?= runs/demo runs/shapes_soft runs/mnist_cluttered60
pictures-page: $(READY)  ## draw the pictures of docs/page.md again, from trained runs
	@$(BIN)/python docs/pictures_page.py $(PAGE_RUNS)

docs: $(READY)  ## build the site in build/site; dead links fail
	@$(BIN)/python docs/site/build_site.py

licences: $(READY)  ## write docs/licences.md and docs/sbom.json anew
	@$(PYTHON) -m venv build/cyclonedx && build/cyclonedx/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom
	@build/cyclonedx/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml $(BIN)/python \
	  | $(BIN)/python docs/licences.py

bench: $(READY)
	@$(BIN)/saccade bench attention

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "saccade needs Python 3.11 or newer; '$(PYTHON)' is older (choose another: make PYTHON=python3.12)"; exit 2; }
	@echo "Setting up $(VENV) (once; a few minutes) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Node, Chromium and clients from npm, which tests run; where they can't be installed, those tests are skipped.
$(NODE): Makefile
	@mkdir -p $(@D)
	@command -v npm >/dev/null || missing="nodejs npm"; command -v chromium >/dev/null || missing="$$missing chromium"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing $$missing for the tests (once) ..."; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends $$missing >/dev/null || true; fi
	@npm install --silent --no-audit --no-fund --prefix $(@D) $(CLIENTS) && touch $@ \
	  || echo "No Node, or no way to its packages: the tests of clients from npm are skipped."

clean:
	rm -rf .node $(VENV) .mypy_cache .ruff_cache .hypothesis build dist
