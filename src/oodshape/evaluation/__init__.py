"""Evaluate methods on networks and images of any kind: `evaluate`, and the `Results` that it returns.

`evaluate` makes the same plan as a benchmark file and runs it with the engine of `benchmark`; `results` shows what
comes out as a table, a page, LaTeX or a data frame.
"""
