"""Engines: a fit and a scoring on many machines. Only the command line imports this package, inside a command."""
