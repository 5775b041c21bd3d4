"""From a model and folders of images to decisions.

`guard` has the public class, `fitted` the value that it works on. Fit: `collect` and `collected` (what a fit needs of
images), `extractor` (images to features), `split` (training and calibration images), `fit`. Score:
`score_images` in memory, `resumable_scores` on disk, `score_formats` (CSV, JSON lines, Parquet; without torch), `live`
one call at a time.
`check` measures a guard on a user's own images, `explain` shows the reasons for a decision, `describe` what a guard is.
`onnx` writes network and guard as one graph, `guarded_file` runs it. `decide` flags images of a finished score file;
`watch`, `watch_state` and `history` follow the p-values of a stream.
"""
