"""Results as tables (terminal, Markdown, LaTeX) and as pages of one HTML file each.

`tables` has the table of methods, the paper's figures next to it, and the renderers. `pages` writes the pages of
benchmarks, scored images, checks and watches. `benchmark_files` runs a benchmark and writes everything. `method_styles`
and `palette` have the colours.
"""
