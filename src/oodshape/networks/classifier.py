"""Any torch network whose logits come from a linear map of its features, read without changing it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from oodshape.core.errors import HeadError, InputError
from oodshape.networks import linear_maps
from oodshape.networks.device import Precision, check_precision, find_device, without_autocast
from oodshape.networks.find_head import WAY_OUT, find_head_name, find_last_map, find_module, is_layer, why_not_head
from oodshape.networks.head import Head, Outputs
from oodshape.networks.model_names import Family

# The head of a network, kept for the next classifier around it: its fingerprint need not be hashed again.
_HEADS: WeakKeyDictionary[nn.Module, dict[str, Head]] = WeakKeyDictionary()
# Every module with the locks of the networks that it is part of, as far as they have been read.
_LOCKS: WeakKeyDictionary[nn.Module, tuple[threading.RLock, ...]] = WeakKeyDictionary()
_LOCKING = threading.Lock()
LARGE = 1e4  # logits that any precision can hold and no network gives


PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
META = (
    "the network's weights are on the meta device: they have no values; load them first, for example with "
    "net.load_state_dict(weights, assign=True)"
)
ONE_OUTPUT = (
    "this network has one output (a binary classifier, trained with BCE), but scores compare the logits of classes: "
    "replace its head by one with the two logits (0, z): two = nn.Linear(head.in_features, 2); two.weight.data = "
    "torch.cat([0 * head.weight, head.weight]).data; two.bias.data = torch.cat([0 * head.bias, head.bias]).data; the "
    "head is {head!r}"
)


class Classifier:
    """A network as features followed by a linear head: images -> Outputs(features, logits, head).

    The head is the nn.Linear whose output is the logits. It is found by value on the first two images of the first
    batch (or of `probe`), and checked on every batch. If no nn.Linear computes the logits, another linear map may: a 1
    x 1 convolution, F.linear inside a forward, a scaled layer. The network runs in eval mode and is left as it was:
    modes, hooks, weights, buffers and gradients.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 3), nn.Dropout())
    >>> classifier = Classifier(net)
    >>> outputs = classifier(torch.rand(5, 3, 2, 2))
    >>> outputs.features.shape, outputs.logits.shape
    (torch.Size([5, 4]), torch.Size([5, 3]))
    >>> classifier
    Classifier(Sequential, head='3')
    """

    def __init__(
        self, net: nn.Module, head: str | None = None, *, probe: Tensor | None = None, precision: Precision = "float32"
    ) -> None:
        """Wrap a network.

        Args:
            net: The network.
            head: The dotted name of the head, if it cannot be found by value.
            probe: Images [N, ...] by which the head is found now instead of at the first batch.
            precision: Run under autocast in this precision; features and logits are float32 in any case.
        """
        if isinstance(net, torch.jit.ScriptModule):
            raise InputError(
                "this network is a TorchScript module (torch.jit): its layers cannot be read from Python; give the "
                "network that it was made from, or a torch.export archive of it (.pt2)"
            )
        self.net = unwrap_network(net)
        self.precision = check_precision(precision)
        self._name = head
        self._head: Head | None = None
        self._plain = True  # until a layer turns out not to be an nn.Linear as torch makes them
        self._order: int | None = None  # of the head among all linear maps of a pass, where it is no such layer
        self._repeatable = False  # whether it was seen that features depend on the image alone
        self._unchanged = False  # whether large logits were seen to reach the output as they are
        self._place = 0  # of the logits among the tensors that the network returns
        if head is not None:
            find_module(self.net, head)
        if probe is not None:
            self(probe[:2])

    @without_autocast()
    def __call__(self, images: Tensor) -> Outputs:
        """Run images through the network, without gradients.

        Args:
            images: [N, ...] tensors that the network takes.

        Returns:
            Features [N, M] and logits [N, C] in float32, and the head.
        """
        with _alone(self.net), torch.inference_mode(False), torch.no_grad():
            images = self._ready(images)
            with self.casting():
                if self._name is None:
                    self._name = find_head_name(self.net, images[:2])
                call, logits = self._read(images)
                if not self._unchanged and not logits.is_meta:
                    self._check_unchanged(images[:2], call)
            features = call.features.float()
            if not features.is_meta:
                linear_maps.check_net_input(features, "features")
            head = self._kept(call.head)
            if head.classes == 1:
                raise HeadError(ONE_OUTPUT.format(head=self._name))
            # Logits of low precision have ties, and differ from those of features that are kept.
            exact = logits.float() if self.precision == "float32" else head.logits(features)
            return Outputs(features, exact, head)

    def _read(self, images: Tensor) -> tuple[linear_maps.MapCall, Tensor]:
        """The call that gives the logits of a batch, and these, in one pass; two where a layer turns out to be none."""
        layer = self._layer
        reason, times = "is no linear layer, and holds no linear map that gives them", 1
        if layer is not None:
            output, calls = linear_maps.read_layers(self.net, images, [layer])
            times = len(calls[layer])
            for place, logits in linear_maps.logit_candidates(output, len(images)):
                said = why_not_head(calls[layer], logits)
                if said is None:
                    self._place = place
                    if place and self._order is None:  # what the network returns first is something else
                        found = find_last_map(self._inside(linear_maps.read_maps(self.net, images)[1]), logits)
                        self._order = None if found is None else found.order
                    return calls[layer][0], logits
                reason = said if place == 0 else reason
        if times == 1:
            output, maps = linear_maps.read_maps(self.net, images, None if self._order is None else self._name)
            for place, logits in linear_maps.logit_candidates(output, len(images)):
                call = find_last_map(self._inside(maps), logits)
                if call is not None:
                    self._order = call.order if self._order is None else self._order
                    self._place, self._plain = place, False
                    return call, logits
        raise HeadError(f"head={self._name!r} does not give the logits of this batch: it {reason}; {WAY_OUT}")

    def _check_unchanged(self, images: Tensor, call: linear_maps.MapCall) -> None:
        """Refuse a layer behind the head that changes large logits (a clamp): some images would never show it."""
        largest = max(float(each[:2].abs().max()) for each in (call.features, call.logits))
        factor = LARGE / largest if largest > 0 else 0.0
        if 1 < factor < float("inf"):
            if (layer := self._layer) is not None:
                output, calls = linear_maps.read_layers(self.net, images, [layer], factor)
                maps = calls[layer]
            else:
                output, maps = linear_maps.read_maps(self.net, images, enlarge={call.order: factor})
            given = linear_maps.list_outputs(output)[self._place].reshape(len(images), -1)
            if bool(torch.isfinite(given).all()) and all(why_not_head([each], given) is not None for each in maps):
                raise HeadError(
                    f"head={self._name!r} gives the logits of these images, but not larger ones: a layer behind it "
                    "changes them (a clamp, an average?); wrap the network so that it returns the head's output itself"
                )
        self._unchanged = True

    def _inside(self, maps: list[linear_maps.MapCall]) -> list[linear_maps.MapCall]:
        """Those that ran in the head's module."""
        return [call for call in maps if not self._name or f"{call.where}.".startswith(f"{self._name}.")]

    @without_autocast()
    def logits(self, images: Tensor) -> Tensor:
        """Compute logits that can be differentiated with respect to the images only.

        Args:
            images: [N, ...] tensors that the network takes.

        Returns:
            [N, C] logits.
        """
        with _alone(self.net), torch.inference_mode(False), torch.enable_grad(), linear_maps.eval_mode(self.net):
            images = self._ready(images)
            # Detached weights: a backward pass reaches the images and leaves no .grad on the network.
            weights = {name: weight.detach() for name, weight in self.net.named_parameters()}
            with self.casting():
                output = torch.func.functional_call(self.net, weights, (images.clone(),))
            return linear_maps.check_logits(linear_maps.list_outputs(output)[self._place], len(images)).float()

    def check_repeatable(self, images: Tensor) -> None:
        """Refuse a network whose features change from run to run, or with the batch.

        It takes four forward passes of one or two images, once per classifier.

        Args:
            images: Two images [2, ...].

        Raises:
            InputError: If the features differ.
        """
        if self._repeatable:
            return
        if self.device.type == "meta":
            raise InputError(META)
        pair, again = self(images).features, self(images).features
        if not self._same(pair, again):
            raise InputError(
                "the network gives other features for the same images each time: it is random in eval mode too "
                "(dropout with training=True, noise); make it deterministic for inference"
            )
        try:
            alone = torch.cat([self(image[None]).features for image in images])
        except InputError:  # statistics of a batch need more than one image
            alone = torch.full_like(pair, torch.nan)
        if not self._same(pair, alone):
            norms = [name for name, module in self.net.named_modules() if getattr(module, "running_mean", ...) is None]
            cause = f" ({', '.join(norms[:3])}: track_running_stats=False)" if norms else ""
            raise InputError(
                f"the network's features of an image depend on the other images of its batch{cause}: a threshold would "
                "hold for one batch only; use a network whose normalisation has fixed statistics in eval mode"
            )
        self._repeatable = True

    def _same(self, features: Tensor, others: Tensor) -> bool:
        return bool((features - others).abs().max() <= self.rounding * features.abs().max())

    @property
    def rounding(self) -> float:
        """How far apart, of the largest, features of one image may be: other batches and devices round differently."""
        floating = [weight for weight in self.net.parameters() if weight.is_floating_point()]
        types = {getattr(torch, self.precision), *(weight.dtype for weight in floating)}
        return max(2e-3, *(8 * torch.finfo(dtype).eps for dtype in types))

    def to(self, device: str | torch.device) -> Classifier:
        """Move the network to a device.

        Args:
            device: auto, cpu, cuda, cuda:N, mps or xpu.

        Returns:
            The classifier itself.
        """
        self.net.to(find_device(device) if isinstance(device, str) else device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the network's weights are."""
        return next((weight.device for weight in self.net.parameters()), torch.device("cpu"))

    @property
    def head_name(self) -> str | None:
        """The dotted name of the head inside the network; None until a batch has shown it."""
        return self._name

    @property
    def head_order(self) -> int | None:
        """How many linear maps run before the head in a pass, where it is no nn.Linear that gives the output alone.

        None for an nn.Linear, and until a batch has shown it.
        """
        return self._order

    @property
    def head_known(self) -> bool:
        """Whether the head's weights can be read without a batch."""
        return self._head is not None or self._layer is not None

    @property
    def head(self) -> Head:
        """The head's weights as they are now: a float32 copy, the same object while they stay equal.

        Those of a head that is no nn.Linear are known from the last batch.
        """
        if (layer := self._layer) is not None:
            with linear_maps.eval_mode(layer):  # in train mode a parametrization may change its buffers
                return self._kept(Head.view((layer.weight, layer.bias)))
        if self._head is None:
            raise InputError('the head is found at the first batch: run one, or give probe=... or head="..."')
        return self._head

    @property
    def _layer(self) -> nn.Linear | None:
        """The head, unless it is unknown or another linear map than an nn.Linear as torch makes them."""
        layer = None if self._name is None or not self._plain else self.net.get_submodule(self._name)
        return layer if is_layer(layer) else None

    def _kept(self, now: Head) -> Head:
        """A copy of the head, the same object while its weights stay equal."""
        kept = self._head or _HEADS.get(self.net, {}).get(str(self._name))
        if kept is None or not (_equal(kept.weight, now.weight) and _equal(kept.bias, now.bias)):
            kept = Head(now.weight.clone(), now.bias.clone())
            _HEADS.setdefault(self.net, {})[str(self._name)] = kept
        self._head = kept
        return kept

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of all parameters and buffers: names, shapes, dtypes and bytes."""
        digest = hashlib.sha256()
        for name, tensor in (*self.net.named_parameters(), *self.net.named_buffers()):
            if tensor.is_meta:
                raise InputError(META)
            digest.update(f"{name} {list(tensor.shape)} {tensor.dtype};".encode())
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        """The network's type and the head's name."""
        return f"Classifier({type(self.net).__name__}, head={self._name!r})"

    def _ready(self, images: Tensor) -> Tensor:
        """The images on the network's device; floating images in its floating type, tokens unchanged."""
        if not isinstance(images, Tensor):
            raise InputError(f"images must be one tensor [N, ...], got {type(images).__name__}")
        if images.ndim < 2 or len(images) == 0:
            raise InputError(f"images must be a batch [N, ...] with N > 0, got shape {list(images.shape)}")
        if images.is_meta and not any(weight.is_meta for weight in self.net.parameters()):
            raise InputError("the images are on the meta device: they have no values; give tensors that hold pixels")
        for weight in self.net.parameters():
            if weight.is_floating_point():
                dtype = weight.dtype if images.is_floating_point() else None
                if weight.device.type == "cuda" and images.device.type == "cpu" and not images.requires_grad:
                    # from pinned memory the device copies by itself
                    return images.pin_memory().to(weight.device, dtype, non_blocking=True)
                return images.to(weight.device, dtype)
        return images

    def casting(self) -> AbstractContextManager[object]:
        """Return the autocast context of the precision.

        Returns:
            A context that does nothing for float32.
        """
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.precision))


def unwrap_network(net: nn.Module) -> nn.Module:
    """The network inside a compiled or data-parallel wrapper.

    A compiled wrapper would bake the reading hook into its graph; a data-parallel one changes the names of layers.
    """
    while inner := getattr(net, "_orig_mod", None) or (isinstance(net, PARALLEL) and net.module):
        net = inner
    return net


def _equal(left: Tensor, right: Tensor) -> bool:
    return left.device == right.device and not left.is_meta and torch.equal(left, right)


@contextmanager
def _alone(net: nn.Module) -> Iterator[None]:
    """Nobody else reads this network, or one that shares a module with it: modes and hooks belong to modules."""
    with ExitStack() as held:
        for lock in _locks_of(net):
            held.enter_context(lock)
        yield


def _locks_of(net: nn.Module) -> tuple[threading.RLock, ...]:
    with _LOCKING:
        if net not in _LOCKS:
            modules = list(net.modules())
            shared = {id(lock): lock for module in modules for lock in _LOCKS.get(module, ())}
            # always in one order, so that no two wait for each other
            found = tuple(shared[key] for key in sorted(shared)) or (threading.RLock(),)
            for module in modules:
                _LOCKS[module] = found
        return _LOCKS[net]


Stamp = tuple[tuple[int, int, int], ...]


def stamp_tensors(tensors: Iterable[Tensor]) -> Stamp:
    """Return identity, address and version of each tensor, without reading values."""
    # writes to tensors made in inference mode are not counted
    return tuple((id(each), each.data_ptr(), -1 if each.is_inference() else each._version) for each in tensors)


def guess_family(net: nn.Module) -> Family:
    """Guess the family of a network from its layers: attention, convolutions over more than patches, or neither."""
    modules = list(net.modules())
    if any("attention" in type(module).__name__.lower() for module in modules):
        return "transformer"
    wide = [module for module in modules if isinstance(module, nn.Conv2d) and module.kernel_size != module.stride]
    return "ConvNet" if any(max(module.kernel_size) > 1 for module in wide) else "MLP"
