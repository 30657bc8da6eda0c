"""eagleconv: read, check and upgrade EAGLE drafters, without changing what they compute."""

__version__ = "0.1.0"
