"""Naive oracles: slow, obvious computations that the library must agree with."""
