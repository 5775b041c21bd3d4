"""Shapes: from features to shaped features."""
