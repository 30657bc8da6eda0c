"""Data flows down: a room imports only from rooms above it in the house (design section 2)."""

import ast
from pathlib import Path

ROOMS = ["errors", "checkpoint", "drafter", "engines", "target", "rules", "runtime", "conversion"]
ROOMS += ["export", "report", "cli"]
PACKAGE = Path(__file__).parent.parent / "eagleconv"


def imports_of(path: Path) -> set[str]:
    """Return the rooms a module imports from, at any depth of the code."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "eagleconv" and len(parts) > 1:
                rooms.add(parts[1])
    return rooms


def test_no_arrow_points_upwards() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room not in ROOMS:
            continue
        for other in imports_of(path) - {room}:
            if ROOMS.index(other) > ROOMS.index(room):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong


def test_every_module_is_in_a_room() -> None:
    found = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in PACKAGE.rglob("*.py")}
    assert found - {"__init__", "__main__"} <= set(ROOMS)


def test_only_the_runtime_and_the_pickle_reader_name_torch() -> None:
    for path in PACKAGE.rglob("*.py"):
        relative = str(path.relative_to(PACKAGE))
        if "torch" in {n.split(".")[0] for n in top_imports(path)}:
            assert relative.startswith("runtime/"), relative


def top_imports(path: Path) -> set[str]:
    """Return what a module imports when it is imported."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names
