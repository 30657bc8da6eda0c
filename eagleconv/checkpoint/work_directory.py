"""A directory that becomes visible under its name only when it is complete.

It is made beside its destination as `.<name>.eagleconv-<random>`, locked as long as its process
lives, and renamed. What a killed process left is recognised by its free lock and removed by the
next one.
"""

import os
import re
import secrets

from eagleconv.checkpoint.copy_stream import write_error
from eagleconv.errors import ConversionError

_TRIES = 100


class WorkDirectory:
    """A locked directory beside the destination.

    Attributes:
        path: Of the directory.
    """

    def __init__(self, parent: str, name: str) -> None:
        """Make it and lock it.

        Args:
            parent: Directory of the destination.
            name: Last part of the destination.

        Raises:
            ConversionError: The parent cannot be written.
        """
        self._parent = parent
        self._fd = -1
        for _ in range(_TRIES):
            self.path = os.path.join(parent, f".{name}.eagleconv-{secrets.token_hex(8)}")
            try:
                os.mkdir(self.path)
                self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                if _lock(self._fd) is not False and _is_at(self._fd, self.path):
                    return
            except (FileExistsError, FileNotFoundError):
                if not os.path.isdir(parent):
                    raise ConversionError(f"{parent} vanished while writing into it") from None
            except OSError as error:
                self.remove()
                raise write_error(os.path.join(parent, name), error) from None
            except BaseException:
                self.remove()
                raise
            # Another process took it for a leftover between mkdir and lock: leave it to that one.
            self._unlock()
        raise ConversionError(f"{parent}: no directory could be locked in {_TRIES} tries")

    def publish(self, destination: str) -> None:
        """Rename it to its destination, which is absent or an empty directory.

        Raises:
            ConversionError: Something has appeared at the destination; it is left as it is.
        """
        try:
            os.rename(self.path, destination)
        except OSError as error:
            if os.path.lexists(destination) and not os.path.ismount(destination):
                raise ConversionError(
                    f"{destination} appeared while it was being written; it was left as it is",
                    "is another eagleconv writing it? Give another -o",
                ) from None
            raise write_error(destination, error) from None
        sync_directory(self._parent)
        self._unlock()

    def remove(self) -> None:
        """Remove it and all it holds; after `publish` there is nothing to remove."""
        import shutil

        if self._fd < 0 or _is_at(self._fd, self.path):
            shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def remove_stale(parent: str, name: str) -> None:
    """Remove the work directories of this destination whose process is gone; leave live ones."""
    import shutil

    pattern = re.compile(rf"\.{re.escape(name)}\.eagleconv-[0-9a-f]{{16}}")
    try:
        with os.scandir(parent) as entries:
            found = [entry.path for entry in entries if pattern.fullmatch(entry.name)]
    except OSError:
        return
    for path in found:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            # It may have been published between the listing and the lock.
            if _lock(fd) and _is_at(fd, path):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, where the file system can."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse it
    finally:
        os.close(fd)


def _lock(fd: int) -> bool | None:
    """Lock without waiting: True, False where another process has it, None where locks fail."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(os.fstat(fd), there)
