"""Numbers about scores: how well they separate, what a threshold guarantees, whether a stream meets the guarantee.

`detection` computes AUROC, FPR95 and the like, `registry` lists the metrics, `significance` compares two methods.
`conformal` sets thresholds and computes p-values, `sequential_test` tests a stream, `beta` has the quantiles.
"""
