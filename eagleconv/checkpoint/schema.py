"""The JSON Schemas of every file read or written, wherever this installation keeps them.

A wheel carries them inside the package (`eagleconv/schemas/`); in a working copy, which an editable
install points to, they lie beside it (`schemas/`).
"""

from pathlib import Path
from typing import Any

from eagleconv.checkpoint.json_file import load_object
from eagleconv.errors import EagleconvError

_PACKAGE = Path(__file__).parent.parent
_HOMES = (_PACKAGE / "schemas", _PACKAGE.parent / "schemas")


def load(name: str) -> dict[str, Any]:
    """Return a schema by name: `eagleconv`, `report`, `eagle3`, `eagle3.1` or `speculators`.

    Raises:
        EagleconvError: This installation does not have it.
    """
    for home in _HOMES:
        path = home / f"{name}.schema.json"
        if path.is_file():
            return load_object(path.read_bytes(), str(path))
    raise EagleconvError(
        f"this installation of eagleconv has no schema {name!r}", "install it again"
    )
