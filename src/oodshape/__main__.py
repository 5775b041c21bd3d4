"""`python -m oodshape` runs the command line."""

from oodshape.cli import main

main()
