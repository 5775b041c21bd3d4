"""Engines: a fit and a scoring on many machines. Nothing but the command line imports this room, inside a command."""
