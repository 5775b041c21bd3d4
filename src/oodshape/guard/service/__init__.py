"""A guarded network behind HTTP: FastAPI around the ONNX file, without torch. Only `oodshape serve` uses it.

One web process receives and answers (`app`); it never parses a body or decodes an image. Each body goes to one of
several scoring processes (`pool`), which parse it (`body`), decode the images and run the network (`scoring`). One that
takes too long is killed and replaced. `run` starts and stops the service.
"""
