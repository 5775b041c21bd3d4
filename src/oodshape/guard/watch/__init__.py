"""Monitor a stream of p-values for a shift."""
