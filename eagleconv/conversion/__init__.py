"""Modes of `upgrade`, `verify` and `diff`.

The room is not called `upgrade`: a subpackage of that name would hide `eagleconv.upgrade()`.
"""
