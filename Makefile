# `make` lists the targets. Each first installs what it needs (scripts/setup).
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
WITH_JAVA := JAVA_HOME="$$(cat .venv/java-home)"
# Many short processes: Java reads classes from the archive of setup-tests, if there is one.
WITH_ARCHIVE := $(WITH_JAVA) SPARK_CONF_DIR="$(CURDIR)/.venv/spark"
PYTEST := $(WITH_ARCHIVE) $(BIN)/pytest
# A process per core, each with its own Spark and servers: up to 6 GB.
PARALLEL := -n logical --maxprocesses 4 --dist worksteal
SQL := $(wildcard models macros dbt/include/*/macros tests/data_tests examples/*/models)
MONGODB_UNITS := change_decoder document_keys document_views documents elements
PAGES := $(wildcard docs/*.md docs/*/*.md)
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
ARGS ?=
ONLY ?=

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: setup
setup: ## Create .venv with everything needed; does nothing if it is complete
	@scripts/setup </dev/null

# $SHELL is the user's shell. With MAKELEVEL and MAKEFLAGS set, a `make` in it would print each folder that it enters.
.PHONY: shell
shell: setup ## Open a shell with `tidemark`, `dbt` and the right Java
	@unset MAKELEVEL MAKEFLAGS MFLAGS; export PATH="$(CURDIR)/$(BIN):$$PATH" $(WITH_JAVA); "$${SHELL:-bash}" || [ -t 0 ]

.PHONY: setup-tests
setup-tests:
	@scripts/setup --tests

.PHONY: setup-bench
setup-bench:
	@scripts/setup --bench

.PHONY: demo
demo: setup ## Replicate real data from an embedded Postgres, change it, compare
	@$(WITH_ARCHIVE) $(BIN)/tidemark demo $(ARGS)

.PHONY: test
test: setup-tests ## The tests that CI runs: unit tests, and those of docs/guarantees.md
	@$(PYTEST) $(PARALLEL) -m core $(ARGS)

.PHONY: test-all
test-all: setup-tests ## All tests: also variants, races, costs and random workloads
	@$(PYTEST) $(PARALLEL) $(ARGS)

.PHONY: coverage
coverage: setup-tests ## Branch coverage of ingest/ by `make test`
	@$(PYTEST) $(PARALLEL) -m core --cov --cov-report=term:skip-covered $(ARGS)

.PHONY: test-unit
test-unit: setup ## The tests that start no server
	@$(PYTEST) tests/unit $(ARGS)

.PHONY: test-postgres
test-postgres: setup-tests ## The tests on every Postgres version that is installed
	@$(PYTEST) tests/integration --postgres all $(ARGS)

.PHONY: test-mongodb
test-mongodb: setup-tests ## The tests of MongoDB as a source
	@$(PYTEST) $(addprefix tests/unit/test_,$(MONGODB_UNITS:=.py)) tests/integration/test_mongodb*.py $(ARGS)

.PHONY: soak
soak: setup-tests ## Random schemas, definitions, workloads, kills for hours (ARGS="--seeds 1-200")
	@$(PYTEST) $(wildcard tests/integration/test_*random*.py) $(or $(ARGS),--seeds 1-200)

.PHONY: mutants
mutants: setup-tests ## Insert faults one by one: does a test fail? (ARGS="P1 --all-tests" selects those of a rule)
	@$(WITH_ARCHIVE) $(BIN)/python -m tests.mutants $(ARGS)

.PHONY: docs
docs: setup ## Build the documentation into site/; every warning is an error
	@$(MKDOCS) --site-dir site

.PHONY: generate-docs
generate-docs: setup ## Write the pages of docs/reference that have a source of truth
	@$(BIN)/python -m scripts.generate_docs

LINTS := lint-sql lint-samples lint-types lint-format lint-rules lint-docs lint-prose lint-tree lint-words
.PHONY: lint $(LINTS)
lint: setup ## Formatting, rules, types, SQL, docs, words, two at a time (-k continues)
	@$(MAKE) --no-print-directory --jobs 2 $(LINTS)
lint-format: setup
	@$(BIN)/ruff format --check
lint-rules: setup
	@$(BIN)/ruff check
lint-types: setup
	@$(BIN)/mypy
lint-sql: setup
	@$(BIN)/sqlfluff lint --disable-progress-bar $(SQL)
lint-samples: setup
	@$(BIN)/python scripts/lint_samples.py README.md $(PAGES)
lint-docs: setup
	@$(MKDOCS) --site-dir .tidemark/site
lint-prose: setup
	@$(BIN)/python -m scripts.lint_prose README.md CHANGELOG.md $(PAGES)
lint-tree:
	@scripts/check-tree
lint-words:
	@scripts/check-words

.PHONY: fmt
fmt: setup ## Fix what can be fixed automatically
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix
	@$(BIN)/sqlfluff fix --disable-progress-bar $(SQL)

.PHONY: bench
bench: setup-bench ## Measure against alternatives (ONLY=stream,snapshot picks some)
	@$(WITH_JAVA) $(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

.PHONY: lock
lock: setup ## Pin the newest versions that pyproject.toml allows
	@scripts/lock

.PHONY: clean
clean: ## Remove the environment, the demo's lake and caches
	@rm -rf .venv .tidemark site target logs dbt_packages .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
