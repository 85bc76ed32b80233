# `make demo` and `make test` do all set-up themselves, also on a fresh machine.
SHELL := /bin/bash
BIN := .venv/bin

PYTEST := .ci/tests
SITE := .venv/site

# In a folder that may only be read, once it is set up, the caches lie elsewhere.
ifneq ($(shell test -w . && echo writable),writable)
CACHES := $(shell mktemp -d)
export RUFF_CACHE_DIR := $(CACHES)/ruff
export MYPY_CACHE_DIR := $(CACHES)/mypy
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHES)/hypothesis
PYTEST += -o cache_dir=$(CACHES)/pytest
SITE := $(CACHES)/site
LINT_IMPORTS := --cache-dir $(CACHES)/imports
# Its workers write where they are.
MYPY := --num-workers 0
endif

.PHONY: demo test test-long lint golden release help clean

demo: ## set up, then three faults in small training jobs: found, mended, measured
	@.ci/setup demo
	@echo "== demo: three small training jobs, each before and after its fix: a minute and a half"
	@$(BIN)/monitor demo
	@echo "== in a shell of your own these commands are in $(BIN)/"

test: lint ## set up, then every check, and tests of everything: six minutes
	@echo "== tests: pytest, without those of make test-long"
	@$(PYTEST) -n 3 -m "not long"

test-long: ## set up, then the rest of the tests: every variant, long stress, many random examples
	@.ci/setup test
	@.ci/tensorflow
	@.ci/trainers
	@echo "== tests: pytest, those that make test leaves out (tests/long.toml)"
	@WHYIDLE_LONG=1 $(PYTEST) -n 2 -m "long or many"

lint: ## set up, then the checks without the tests
	@.ci/setup test
	@echo "== lint: ruff check"
	@$(BIN)/ruff check .
	@echo "== format: ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "== types: mypy, strict"
	@$(BIN)/mypy $(MYPY)
	@echo "== layers: import-linter"
	@$(BIN)/lint-imports $(LINT_IMPORTS)
	@echo "== forms: .github against its schemas, and for holes"
	@$(BIN)/check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema -q --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/check-jsonschema -q --builtin-schema vendor.citation-file-format CITATION.cff
	@$(BIN)/zizmor --offline --quiet .github
	@echo "== words: the sheet of CONTRIBUTING.md"
	@$(BIN)/python .ci/words
	@echo "== docs: generated parts of README*.md and docs/"
	@$(BIN)/cog --check README*.md docs/*.md benchmarks/CASES.md
	@echo "== site: docs/ as pages, links and their anchors"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $(SITE)

golden: ## set up, then show what a change alters in all that was ever said of anything recorded
	@.ci/setup test
	@$(BIN)/python -m tests.golden

release: ## build what is published into dist/, and install it where nothing else of ours is
	@.ci/release

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 14

clean: ## remove the virtual environment and all caches
	rm -rf .venv build dist *.egg-info monitor/traces/*.so monitor/traces/*/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
