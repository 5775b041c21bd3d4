"""Images as users and benchmarks have them, decoded and prepared for a network.

`listing` decides what a user gave: files (`folders`), archives, images in memory. All are an `image_set.ImageSet`;
`places` reads addresses, `decode` makes pictures of files within `limits`, `preprocessing` makes what a network takes,
and `prefetch` does both ahead of the network. `catalog` holds the benchmarks' sets, which `small_sets`, `imagenet`,
`digits` and `openood_sets` read; `synthetic` makes noise and scrambled images. `identity` says which image is which,
and `copies` finds images that two sets share.
"""
