"""The only room that computes with weights, and the only one that needs torch."""

from eagleconv.errors import MissingExtraError

try:
    import torch  # noqa: F401  (the modules of this room then need not ask)
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "computing with a drafter needs torch", "pip install 'eagleconv[run]'"
    ) from error
