# Every target that runs something sets itself up first, so a fresh clone needs no other step.
# ARGS is passed on: make test ARGS='-k grids', make bench ARGS=--help

# Targets build on each other's results, so -j must not reorder them.
.NOTPARALLEL:
.PHONY: help setup demo test lint check-layers bench clean

MAKEFLAGS += --no-print-directory
# Without it Spark binds to whatever address the host name resolves to, which may be none.
export SPARK_LOCAL_IP = 127.0.0.1

BIN = .venv/bin
WITH_JAVA = @JAVA_HOME="$$(tools/setup_java.sh)" && export JAVA_HOME &&

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## find or install Java, make .venv
	@tools/setup_java.sh >/dev/null
	@tools/setup_python.sh

demo: setup ## see a skewed join before and after
	$(WITH_JAVA) $(BIN)/evenkeel demo $(ARGS)

test: lint check-layers ## lint, check the layers, run every test
	$(WITH_JAVA) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## ruff and mypy
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy

check-layers: setup ## no module imports from a layer above its own
	$(BIN)/python tools/check_layers.py

bench: setup ## run the benchmarks
	$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

clean: ## remove caches and outputs, keep .venv
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis out artifacts build dist spark-warehouse metastore_db derby.log
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
