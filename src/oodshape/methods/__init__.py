"""Recipes, detectors and the records of the methods.

`base` has the interfaces of the four slots: `perturb`, `shapes`, `heads` and `scores` fill them. `training` is what a
recipe is fitted on, `detector` the result; `fit_all` fits many methods in one pass. `records` reads what is known about
each method, `registry` makes methods from it, `describe` prints it. `auto` selects and fuses methods by proxy OOD sets
(`held_out_classes`, `fusion`). `guarded_net` and `feature_capture` put a detector into a network, `sklearn_estimator`
into scikit-learn.
"""
