"""The program with all of its commands; `main` makes one with the command that was asked for."""

from oodshape.cli.main import make_app

app = make_app()
