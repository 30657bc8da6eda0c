"""These tests need .venv-engines; elsewhere they are not collected."""

from __future__ import annotations

import importlib.util

import pytest

Row = tuple[str, ...]
ROWS = pytest.StashKey[list[Row]]()

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the summary table."""
    config.stash[ROWS] = []


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> list[Row]:
    """Rows (name, largest difference, counters) that are printed when all tests are done."""
    return request.config.stash[ROWS]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what vLLM measured before and after the upgrade."""
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    rows = [("drafter", "max |d|", "drafts, accepted per position"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    terminalreporter.section("vLLM before and after upgrade")
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
