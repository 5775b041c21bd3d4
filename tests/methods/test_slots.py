"""A recipe speaks for those inside it; parts are names that files, strings and type checkers share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from data import features
from oodshape import FittedScore, InputError, Method, Moments, ScoreRecipe, Statistic
from oodshape.methods.heads import Dice, Lts
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.registry import METHODS
from oodshape.methods.scores.nearest_neighbours import Knn
from oodshape.methods.shapes.ash import AshP
from oodshape.methods.shapes.bats_ras import Bats, Ras
from oodshape.methods.shapes.clipping import Product, ReAct


def test_a_recipe_is_what_its_pieces_are() -> None:
    both = Product((Bats(), Ras(), ReAct()))
    assert list(both.inside()) == [Bats(), Ras(), ReAct()]
    assert both.needs == {Statistic.SQUARES, Statistic.PROFILE}
    assert not both.for_nonnegative
    assert Product((ReAct(), AshP())).for_nonnegative
    method = Method(shape=both, head=Dice())
    assert method.needs == both.needs
    assert method.exportable
    assert not Method(perturb=Odin(eps=0.1)).exportable
    assert Method(head=Lts()).for_nonnegative
    assert Method(score=Knn()).needs == {Statistic.BANK}
    assert [name for name, row in METHODS.items() if row.wants_proxy] == ["auto"]


def test_a_string_is_the_part_of_its_name() -> None:
    train = features(50)
    by_name, by_part = (Moments.of(train, frozenset(needs)) for needs in (["counts"], [Statistic.COUNTS]))
    np.testing.assert_array_equal(by_name.parts[Statistic.COUNTS], by_part.parts["counts"])


@dataclass(frozen=True, eq=False, repr=False)
class Count(FittedScore, ScoreRecipe):
    """A score of one's own that names its part by a string."""

    part: str = "counts"

    @property
    def needs(self):
        return frozenset([self.part])

    def fit(self, train):
        assert train.moments(self.needs).parts["counts"].sum() == train.stats.n
        return self


def test_a_recipe_may_name_its_parts_by_strings() -> None:
    train = features(50)
    Method(score=Count()).fit(train)
    Method(score=Count()).fit(train.stats, train.head, Moments.of(train, frozenset(["counts"])))
    with pytest.raises(InputError, match="needs the counts of the training features"):
        Method(score=Count()).fit(train.stats, train.head)


@pytest.mark.parametrize("with_features", [True, False])
def test_a_wrong_name_is_one_clear_error(with_features: bool) -> None:
    train = features(50)
    given = (train,) if with_features else (train.stats, train.head, Moments.of(train, frozenset(["counts"])))
    with pytest.raises(InputError, match="no statistic is called 'cuonts'; did you mean counts"):
        Method(score=Count("cuonts")).fit(*given)
