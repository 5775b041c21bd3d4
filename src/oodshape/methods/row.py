"""Row: a method of the table, and what to say about it."""

from __future__ import annotations

from typing import NamedTuple

from oodshape.methods.detector import Method


class Row(NamedTuple):
    """A recipe in words that need no paper. The lists, the page and the method's own page in the docs show them."""

    method: Method
    what: str = ""  # it does
    needs: str = ""  # in images and time, to a user
    fails: str = ""  # when
    paper: str = ""  # the reference, in Markdown


# said of more than one method
NOTHING = "nothing: learns no data"
IMAGES = "a few hundred training images"
PER_CLASS = "several training images of every class"
BANK = "a bank of training images, kept in the file"
SIGNED = "on features that may be negative (transformers, MLPs, swish)"
CONFIDENT = "where the network is confident on unknowns"
FAR = "where shaping does not suit the network: compare on your own images"
HENDRYCKS = "Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022."
OWN = "Our own: the paper's problem with another bound."
