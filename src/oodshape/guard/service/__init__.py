"""A guarded network behind HTTP: FastAPI around the ONNX file, without torch. Only `oodshape serve` uses it.

One web process receives and answers (`app`); it never parses a body or decodes an image. Each body goes to one of
several scoring processes (`pool`), which parse it (`body`), decode the images and run the network (`worker`). A process
that takes too long is killed and replaced. `serve` starts and stops the service.
"""
