"""Every way images come in.

An `ImageSet` gives images by number with labels and a fingerprint: files (`folders`, and `listing` for whatever a
user gives, both through `walking`), arrays, the digits that come with the package, noise, scrambled ID images, and the
public data sets (`readers/`, `catalog`, `by_name`). `decode` reads a file, `preprocessing` makes of it what a
network takes, and `prefetch` does both ahead of whoever uses the images.
"""
