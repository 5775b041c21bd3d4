"""Methods x networks x sets -> results.

`spec` reads a benchmark (`specs` has those of the package), `plan` finds what is available, `run` runs every method
on every network, which `bench_model` extracts features from and scores. `results` holds the rows with their provenance,
`kept_scores` the scores. `comparisons` compares methods, `repeat` repeats a run.
Nothing here prints; `oodshape.report` does.
"""
