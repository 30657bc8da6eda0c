"""Read a directory as an engine does, and compare the outcome with what was trained."""

from eagleconv.engines.compare import compare
from eagleconv.engines.deviation import Deviation, Files, Reading
from eagleconv.engines.load_tensors import load_tensors
from eagleconv.engines.loading import Loading
from eagleconv.engines.read_config import holds, read_config

__all__ = ["Deviation", "Files", "Reading", "holds", "simulate"]


def simulate(loading: Loading, files: Files, version: str, runner: str) -> Reading:
    """Return what an engine makes of a directory.

    Args:
        loading: The engine.
        files: The directory, and what was trained.
        version: The engine's version, for reads that changed.
        runner: Its model runner, or empty.
    """
    reading = Reading()
    if not files.loadable:
        reading.deviations.append(
            Deviation(
                "config",
                "refused",
                files.why_not_loadable,
                "it loads weight files beside a config.json",
            )
        )
        return reading
    read_config(loading, files, reading, version, runner)
    if not reading.refused:
        load_tensors(loading, files, reading)
    if not reading.refused:
        compare(loading, files, reading, runner)
    return reading
