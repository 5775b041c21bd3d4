"""Numbers about scores: how well they separate, what a threshold promises, whether a stream keeps it."""
