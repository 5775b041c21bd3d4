"""The paper's other tables and figures.

A study is a function of a `Network`, the features of one network, that returns a data frame. `catalog` lists the
studies with their tables (`tables`) and figures (`figures`, `plotting`). `write` runs them and writes their files.
"""
