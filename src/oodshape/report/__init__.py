"""Reports of results: tables for a terminal, as Markdown and as LaTeX, figures, one HTML page."""

from oodshape.report.page import write_page as write_page
from oodshape.report.table_kinds import tables_of as tables_of
from oodshape.report.tables import show as show
from oodshape.report.tables import table as table
from oodshape.report.tables import to_latex as to_latex
from oodshape.report.tables import to_markdown as to_markdown
from oodshape.report.tables import to_rich as to_rich
from oodshape.report.tables import to_text as to_text
