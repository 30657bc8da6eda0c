PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-engines check clean

# The main job on a real trained drafter: look at it, upgrade it, check the result.
demo: $(VENV)/demo.stamp
	@rm -rf demo-output
	$(BIN)/eagleconv inspect fixtures/smollm2-135m-eagle3
	$(BIN)/eagleconv validate fixtures/smollm2-135m-eagle3 --engine vllm --engine sglang \
	    --target fixtures/targets/smollm2-135m-instruct
	$(BIN)/eagleconv upgrade fixtures/smollm2-135m-eagle3 -o demo-output \
	    --target fixtures/targets/smollm2-135m-instruct
	$(BIN)/eagleconv verify demo-output

test: $(VENV)/test.stamp check
	$(BIN)/python -m pytest -q

check: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy

# Real vLLM on CPU, in an environment of its own.
test-engines:
	tests/engines/install.sh
	OMP_NUM_THREADS=1 .venv-engines/bin/python -m pytest tests/engines -q -o addopts=

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install -q -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-engines .cache
