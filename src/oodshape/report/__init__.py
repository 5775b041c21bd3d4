"""Results as people read them: tables for a terminal, as Markdown and as LaTeX, and pages of one HTML file each.

`tables` holds the table of methods, the paper's figures next to it, and the renderers. `pages` writes the pages of
benchmarks, scored images and checks. `benchmark_files` runs a benchmark and writes everything.
"""

from oodshape.report.pages.benchmark_page import write_page as write_page
from oodshape.report.tables.kinds import tables_of as tables_of
from oodshape.report.tables.markdown_latex import to_latex as to_latex
from oodshape.report.tables.markdown_latex import to_markdown as to_markdown
from oodshape.report.tables.table import table as table
from oodshape.report.tables.terminal import show as show
from oodshape.report.tables.terminal import to_rich as to_rich
from oodshape.report.tables.terminal import to_text as to_text
