"""Where reports go: stdout, or a file written whole."""

import os
import sys

from eagleconv.errors import ConversionError


def emit(text: str, path: str | None) -> None:
    """Write a report to a file, or to stdout.

    Raises:
        ConversionError: The file cannot be written.
    """
    if path is None:
        sys.stdout.write(text)
        return
    if os.path.lexists(path) and (os.path.isfile(path) or os.path.islink(path)):
        raise ConversionError(
            f"{path} exists; nothing is ever overwritten", "give another -o, or remove it first"
        )
    try:
        with open(path, "x" if not os.path.lexists(path) else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConversionError(f"{path} cannot be written: {error.strerror}") from None
