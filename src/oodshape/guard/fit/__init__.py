"""Fit a guard: extract features, split images, collect parts."""
