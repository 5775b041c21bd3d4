"""From a model and folders of images to decisions.

`guard` has the public class, `fitted` the value that it works on. `fit` collects features, splits images and fits;
`scoring` scores images and writes, reads and decides about score files; `check` measures a guard on the user's own
images, `explain` shows the reasons for a decision, `live` decides in one call, `describe` describes a guard. `export`
writes network and guard as one ONNX file and runs it, `service` serves it over HTTP, `watch` monitors a stream.
`verdict` has the rows that they return.
"""
