"""The features of a data set behind one network, and the sums over them.

`features` has the public class; `extraction` computes features and `disk_cache` keeps them, `tensor_batches` does so
for prepared tensors. `feature_stats` is a histogram over feature values, `moments` holds further sums by name
(`Statistic`), and `training_sums` both for images whose features are not kept. `kernels` and `sum_kernels` are the
compiled loops, `chunks` the runs of rows that they work on. `proxy` makes the features of proxy OOD sets.
"""
