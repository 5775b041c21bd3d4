"""Networks by name: what the paper, OpenOOD and the embedded digits use.

`registry` is the table: a name, the network behind it, its preprocessing, where its weights come from. The networks
that no library has are written here: the three for digits (with their weights, in `weights/`), and those for images of
32 x 32 pixels (DenseNet, ResNet-18, MLP-Mixer-Nano).
"""

from oodshape.networks.zoo.registry import MODELS, ModelEntry, build, find_weights, library, model_entry, weights_needed

__all__ = ["MODELS", "ModelEntry", "build", "find_weights", "library", "model_entry", "weights_needed"]
