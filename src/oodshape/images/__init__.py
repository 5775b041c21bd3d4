"""Images from users and benchmarks, decoded and prepared for a network.

`sources` opens any kind of input as a data set or a stream, `decode` turns files into arrays within limits and prepares
them ahead of the network, `datasets` has the benchmarks' sets and synthetic images. `identity` gives each image a key
by which subsets are drawn, and `duplicates` finds images that two sets share.
"""
