"""Recipes, detectors and the records of the methods.

`slots` has the interfaces of the four slots: `perturb`, `shapes`, `heads` and `scores` fill them. `detector` has
`Method`, the recipe, and `Detector`, the result; `training_set` is what a recipe is fitted on, `fit_all` fits many
methods in one pass. `records` reads what is known about each method, `registry` makes methods from it, `describe`
prints it. `auto` selects and fuses methods by proxy OOD sets (`held_out_classes`, `fusion`). `guarded_net` and
`feature_capture` put a detector into a network, `sklearn_estimator` into scikit-learn.
"""
