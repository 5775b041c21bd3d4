"""Evaluate methods on networks and images of any kind: `evaluate`, and the `Results` that it returns.

`evaluate` makes the same plan as a benchmark file and runs it with the engine of `oodshape.benchmark`;
`printable_results` shows the results as a table, a page, LaTeX or a data frame.
"""
