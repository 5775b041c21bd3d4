"""The paper's other tables and figures.

A study is a function of a `StudyNetwork`, the features of one network (`load_networks`), that returns a data frame.
`catalog` lists the studies, runs them and writes their files; `compare_methods`, `optfs_variants`, `shaping_functions`
and `theta` compute them, `tables`, `figures` and `plotting` show them.
"""
