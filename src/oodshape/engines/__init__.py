"""Fit and score on many machines. Only the command line imports this package, inside a command.

`ray` has the verbs and the pool of Ray actors, `workers` the work on one shard.
"""
