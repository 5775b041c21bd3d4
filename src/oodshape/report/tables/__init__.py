"""Tables of results: in the terminal, as Markdown, LaTeX and CSV, next to the paper's figures."""
