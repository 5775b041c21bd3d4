"""Count the lines of code in src and tests: docstrings, comments and blank lines are left out.

python scripts/count_lines.py [--by-package] [FOLDER ...]
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def count_code_lines(source: str) -> int:
    """Count the lines of `source` that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def main() -> None:
    """Print one line per folder, or per package of each folder."""
    parser = argparse.ArgumentParser(description="Count lines of code, without docstrings, comments and blanks.")
    parser.add_argument("folders", nargs="*", default=["src", "tests"])
    parser.add_argument("--by-package", action="store_true", help="one line per package")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        root = ROOT / folder
        base = root / "oodshape" if (root / "oodshape").is_dir() else root
        lines: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):
            inside = path.relative_to(base).parts
            package = inside[0] if len(inside) > 1 else "."
            lines[package] += count_code_lines(path.read_text(encoding="utf-8"))
            files[package] += 1
        if arguments.by_package:
            for package in sorted(lines):
                print(f"{folder}/{package}: {lines[package]:,} code lines in {files[package]} files")
        print(f"{folder}: {lines.total():,} code lines in {files.total()} files")


if __name__ == "__main__":
    main()
