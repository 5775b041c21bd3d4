"""Results as people read them: tables for a terminal, as Markdown and as LaTeX, and pages of one HTML file each.

`measures` declares what is shown, once; `pivot` makes the table of methods, `beside_paper` sets the paper's figures
beside it, `render` and `terminal` print it. `page` writes the page of a benchmark from `page_data` and the scripts in
`web`, `check_page` and `score_page` those of a guard, all in the skeleton of `html`. `benchmark_files` runs a
benchmark and writes everything.
"""

from oodshape.report.page import write_page as write_page
from oodshape.report.pivot import table as table
from oodshape.report.render import to_latex as to_latex
from oodshape.report.render import to_markdown as to_markdown
from oodshape.report.table_kinds import tables_of as tables_of
from oodshape.report.terminal import show as show
from oodshape.report.terminal import to_rich as to_rich
from oodshape.report.terminal import to_text as to_text
