"""Several methods on the same images: what is shared changes nothing but the cost."""

from __future__ import annotations

import pytest
import torch

from data import features
from oodshape import METHODS, Features, InputError
from oodshape.methods.auto import CANDIDATES
from oodshape.methods.fit_all import fit_all, fit_each, score_each

SINGLE = {name: METHODS[name] for name in CANDIDATES}


def test_scores_together_are_those_of_each_alone() -> None:
    train, test = features(400), features(100, seed=1)
    fitted = fit_all(SINGLE, train)
    assert list(fitted) == list(SINGLE)
    found = score_each(fitted, test)
    for name, detector in fitted.items():
        torch.testing.assert_close(found[name], detector.score(test), rtol=1e-5, atol=1e-5)


def test_one_that_refuses_leaves_the_others_alone() -> None:
    data = features(300)
    negative = Features.from_arrays(-next(iter(data.chunks()))[1].numpy() - 1, (data.head.weight, data.head.bias))
    found = dict(fit_each({"bfact": METHODS["bfact"], "energy": METHODS["energy"]}, negative))
    assert isinstance(found["bfact"], InputError)
    assert not isinstance(found["energy"], InputError)
    with pytest.raises(InputError):
        fit_all({"bfact": METHODS["bfact"]}, negative)


def test_methods_share_the_products_of_one_bank_and_never_those_of_two() -> None:
    banks = [fit_all({name: METHODS[name] for name in ("knn", "nnguide")}, features(n)) for n in (300, 200)]
    assert banks[0]["knn"].scorer.bank is banks[0]["nnguide"].scorer.bank
    every = {f"{name} {place}": detector for place, bank in enumerate(banks) for name, detector in bank.items()}
    test = features(50, seed=1)
    for name, scores in score_each(every, test).items():
        torch.testing.assert_close(scores, every[name].score(test), rtol=1e-5, atol=1e-5)
