"""From image files to arrays: formats, limits, preprocessing, decoding ahead of the network."""
