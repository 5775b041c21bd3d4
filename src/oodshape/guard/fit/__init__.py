"""Fit a guard: `extractor` computes features, `split` separates fitting and calibration images, `fit` fits.

`collect` writes `parts`, what a fit needs of one shard of the images; `sanity` checks noise and constant images.
"""
