"""The command line: `main` puts the commands together, each has a file that parses, calls and prints.

`options` holds what several commands take. Nothing is computed here, and the heavy imports stand inside the commands,
so that `oodshape --help` is quick.
"""

from oodshape.cli.main import main as main
