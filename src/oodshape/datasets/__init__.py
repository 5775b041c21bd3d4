"""Image sets: anything with a name, a length, images, labels and a fingerprint."""
