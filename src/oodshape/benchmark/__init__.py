"""Methods x networks x sets -> Results.

`spec` reads what is compared (`specs` holds the benchmarks that come with the package), `prepared` finds what is here
of it, `run` extracts, fits, scores and measures, `results` keeps the rows with their provenance, and `curves` what
pages draw. Nothing here prints: that is `report`'s.
"""
