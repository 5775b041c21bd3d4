"""From a model and folders of images to decisions.

`guard` is the front door, Guard, and `fitted` the value that its verbs work on: `fit` makes it (of two `parts`),
`score` judges images by it (`score_file` on disk, `live` call by call), `check` measures it on a user's own images,
`export` and `onnx` write it as one graph, `describe` says what it is. `watch` follows the p-values of a stream
(`p_value_stream`) and tells when to refit.
"""
