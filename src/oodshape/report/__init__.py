"""Results as people read them: tables for a terminal, as Markdown and as LaTeX, and pages of one HTML file each.

`tables` holds the table of methods, the paper's figures next to it, and the renderers. `pages` writes the pages of
benchmarks, scored images and checks. `benchmark_files` runs a benchmark and writes everything.
"""
