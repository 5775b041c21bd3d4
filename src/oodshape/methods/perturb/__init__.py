"""Perturbations of the image before the network sees it."""
