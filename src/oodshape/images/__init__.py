"""Every way images come in.

An `ImageSet` gives images by number with labels and a fingerprint: files (`folders`, and `listing` for whatever a
user gives, both through `walking`), arrays, the digits that come with the package, noise, scrambled ID images, and the
public data sets (`readers/`, `catalog`, `by_name`). `one_image` is one image of any kind, `in_memory` sets of them,
`prepared_batches` tensors that a network takes as they are; `copies` finds the images that two sets share. `decode`
reads a file as a picture (`kinds`: in colour or gray, upright; `large` ones as they are stored), `preprocessing` makes
of it what a network takes, and `prefetch` does both ahead of whoever uses the images.
"""
