"""Recipes and detectors. Every type of a method is known from here on, so that a file that names it can be read."""

import oodshape.methods.table  # noqa: F401
