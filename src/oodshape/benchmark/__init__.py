"""Methods x networks x sets -> results.

`spec` reads a benchmark (`specs` has those of the package), `plan` finds what is available, `run` extracts, fits,
scores and measures, with `perturbed_scores` for methods that change the image. `results` holds the rows with their
provenance, `kept_scores` the scores, `curves` what pages draw. `comparisons` compares methods, `repeat` repeats a run.
Nothing here prints; `oodshape.report` does.
"""
