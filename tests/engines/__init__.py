"""Contract tests against real vLLM on CPU. They run in .venv-engines (see install.sh)."""
