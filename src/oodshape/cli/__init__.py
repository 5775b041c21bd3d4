"""The command line: `main` puts the commands together; each has a file that parses, calls and prints.

`shared_options` and `method_options` have the options of several commands, `option_groups` turns typed options into
options of a command, `terminal` prints. Nothing is computed here, and heavy imports are inside the commands, so that
`oodshape --help` is quick.
"""

from oodshape.cli.main import main as main
