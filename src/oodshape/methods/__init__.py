"""Recipes, detectors and the records of the methods."""
