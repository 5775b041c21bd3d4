"""The data sets of the benchmarks: a catalog, readers, and sets that are generated."""
