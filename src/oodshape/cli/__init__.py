"""The command line."""

from oodshape.cli.app import main as main
