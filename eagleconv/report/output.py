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
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise ConversionError(f"{path} cannot be written: {error.strerror}") from None
