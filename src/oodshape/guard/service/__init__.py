"""A guarded network behind HTTP: FastAPI around the ONNX file, without torch. `oodshape serve` is the only caller.

`settings` holds what the command was told, `body` reads requests, `counters` count for all workers, `watching` looks at
the p-values, `logs` writes JSON lines, `app` puts them together, and `run` starts and stops it.
"""
