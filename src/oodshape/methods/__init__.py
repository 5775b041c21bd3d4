"""Recipes and detectors. The table is whole, and every type that a file may name is known, from here on."""

import oodshape.methods.auto  # noqa: F401
