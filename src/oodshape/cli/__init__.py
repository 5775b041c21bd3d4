"""The command line: `main` puts the commands together; each has a file that parses, calls and prints.

`make_command` turns a function with typed options into a command, `shared_options` has the options of several
commands, `terminal` prints. Nothing is computed here, and heavy imports are inside the commands, so that
`oodshape --help` is quick.
"""

from oodshape.cli.main import main as main
