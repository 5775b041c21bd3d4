"""Results as people read them: tables for a terminal, as Markdown and as LaTeX, and pages of one HTML file each.

`measures` declares what is shown. `pivot` makes the table of methods, `beside_paper` adds the paper's figures, `render`
and `terminal` print it. `page` writes the page of a benchmark, `scored_page` and `check_page` those of a guard, with
`html`. `benchmark_files` runs a benchmark and writes everything.
"""

from oodshape.report.pages.benchmark_page import write_page as write_page
from oodshape.report.tables.kinds import tables_of as tables_of
from oodshape.report.tables.markdown_latex import to_latex as to_latex
from oodshape.report.tables.markdown_latex import to_markdown as to_markdown
from oodshape.report.tables.table import table as table
from oodshape.report.tables.terminal import show as show
from oodshape.report.tables.terminal import to_rich as to_rich
from oodshape.report.tables.terminal import to_text as to_text
