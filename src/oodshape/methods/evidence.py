"""Evidence: what a score may look at, computed only when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from oodshape.core.once import once
from oodshape.features.rows import unit
from oodshape.methods.heads import Batch, FittedHead
from oodshape.methods.shapes.clipping import Shape
from oodshape.networks.head import Head


@dataclass(eq=False)
class Evidence:
    """Some images as a detector sees them: logits after shape and head, features and classes of the network."""

    batch: Batch
    shape: Shape
    fitted: FittedHead
    layer: Head  # the fitted head's own linear layer

    @once
    def logits(self) -> Tensor:
        """[n, C] logits of the shaped features."""
        return self.fitted.logits(self.batch, self.shape, self.layer)

    @property
    def features(self) -> Tensor:
        """[n, M] float32: the features as the network gives them, finite."""
        return self.batch.features

    @property
    def classes(self) -> Tensor:
        """[n]: the class that the network predicts."""
        return self.batch.classes

    @property
    def head(self) -> Head:
        """The classifier's own head."""
        return self.batch.head

    @once
    def directions(self) -> Tensor:
        """[n, M]: features of length 1; zeros stay zeros."""
        return unit(self.features)
