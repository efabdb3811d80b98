"""A GPU that is not there: networks of any size run on the device `cuda` with shapes and dtypes, but without values.

PyTorch's `FakeTensorMode` does this, and raises where devices mix. Here, tensors on the CPU keep their values, so that
tokenizers, images and grouping work as always. Only what is on the GPU is fake. Reading a value from the GPU makes the
CPU wait for it; such reads are counted, and give ones, and no places where a mask is true.
"""

import traceback
import weakref
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

GIB = 2**30

_ROOT = Path(__file__).resolve().parents[2]
# PyTorch 2.11's Python form of this operation, which counting takes first, lacks `padding_side`; the one in C++ has it.
torch.ops.aten.pad_sequence.default.py_kernels.pop(torch._C.DispatchKey.CompositeImplicitAutograd, None)
_SCALARS = {torch.Tensor.__int__: 1, torch.Tensor.__index__: 1, torch.Tensor.__float__: 1.0}
# Functions that would start CUDA outside of the mode, to choose a kernel or to move a list of indices.
_INITIALISING = {functional.scaled_dot_product_attention, torch.Tensor.__getitem__, torch.Tensor.__setitem__}
_AS_ARRAYS = {torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy}
_READS = {*_AS_ARRAYS, torch.Tensor.cpu, torch.Tensor.nonzero, torch.Tensor.__bool__, *_SCALARS}


class FakeDevice:
    """Runs code as if there were a GPU, and measures it.

    Args:
        name: `"cuda"`. PyTorch's engine for gradients needs a real GPU, so a backward pass runs on `"cpu"`, with fake
            tensors all the same.

    Attributes:
        condition: the value of every condition that is read from the device. With False, `generate` would never end.
        reads: {file and function of the project, or else of the library: how often a value was read from the GPU}.
        bytes, peak: bytes of all tensors that are on the device, now and at most.
    """

    def __init__(self, name="cuda"):
        self.name = name
        self.condition = False
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.reads = Counter()
        self.bytes = self.peak = 0
        self._seen = weakref.WeakSet()

    def build(self, make, dtype=torch.float32):
        """A network on the device, whose weights have no values."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with self.mode, torch.device(self.name), _Transfers(self, lambda: None), _as_on_a_gpu():
                network = make()
        finally:
            torch.set_default_dtype(default)
        for value in (*network.parameters(), *network.buffers()):
            self.count(value)
        return network

    @contextmanager
    def run(self):
        """Context in which tensors can be sent to the device; gives a function that returns the FLOPs so far."""
        with (
            FlopCounterMode(display=False) as flops,
            _Memory(self),
            _Transfers(self, self.note_read),
            _as_on_a_gpu(),
        ):
            yield flops.get_total_flops

    def memory(self):
        """Context that counts memory alone: what has values keeps them, and no FLOPs are counted.

        Some networks choose shapes by values, and `FlopCounterMode` holds on to what checkpoints compute again.
        """
        return _Memory(self)

    def is_on(self, value):
        return isinstance(value, FakeTensor) and value.device.type == self.name

    def count(self, value):
        """Adds the memory of a tensor until it is freed."""
        if not self.is_on(value):
            return
        storage = value.untyped_storage()
        if storage not in self._seen:
            self._seen.add(storage)
            self.bytes += storage.nbytes()
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size):
        self.bytes -= size

    def note_read(self):
        """Counts a read by the innermost function of the project."""
        frames = [frame for frame in traceback.extract_stack() if frame.filename != __file__]
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(_ROOT / "reward")]
        frame = (own or frames)[-1]
        self.reads[f"{Path(frame.filename).name} {frame.name}"] += 1


@contextmanager
def _as_on_a_gpu():
    """Lets `Module.to` replace fake parameters, which PyTorch cannot change in place, and `tolist` read at once."""
    original, tolist = nn.Module._apply, FakeTensor.tolist

    def convert(module, function, recurse=True):
        for child in module.children() if recurse else ():
            convert(child, function)
        for name, value in module._parameters.items():
            if value is not None:
                module._parameters[name] = nn.Parameter(function(value.detach()), value.requires_grad)
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = function(value)
        return module

    nn.Module._apply = convert
    FakeTensor.tolist = torch.Tensor.tolist  # one read, not one for each element
    try:
        yield
    finally:
        nn.Module._apply = original
        FakeTensor.tolist = tolist


class _Memory(TorchDispatchMode):
    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            self.device.count(value)
        return out


class _Transfers(TorchFunctionMode):
    """Makes tensors fake on their way to the device, and real on their way back, of which it tells `note_read`."""

    def __init__(self, device, note_read):
        super().__init__()
        self.device, self.note_read = device, note_read

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        is_there = bool(args) and self.device.is_on(args[0])
        if is_there and (func in _READS or _leaves(func, args[1:], kwargs)):
            self.note_read()
            return self.device.condition if func is torch.Tensor.__bool__ else _value(func, args, kwargs)
        if (is_there and func in _INITIALISING) or _arrives(self.device.name, func, args, kwargs):
            with self.device.mode:
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def _targets(args, kwargs):
    for value in (*args, kwargs.get("device")):
        if isinstance(value, (str, torch.device)):
            yield torch.device(value).type


def _arrives(name, func, args, kwargs):
    if func is torch.Tensor.to:
        return name in _targets(args[1:], kwargs)
    return kwargs.get("device") is not None and torch.device(kwargs["device"]).type == name


def _leaves(func, args, kwargs):
    return func is torch.Tensor.to and "cpu" in _targets(args, kwargs)


def _value(func, args, kwargs):
    """Ones in place of what is read; of `nonzero`, that there are none."""
    tensor = args[0]
    if func is torch.Tensor.nonzero:
        none = tensor.new_empty(0, dtype=torch.long)
        return (none,) * tensor.ndim if kwargs.get("as_tuple") else none.reshape(0, tensor.ndim)
    if func in _SCALARS:
        return _SCALARS[func]
    dtype = next((each for each in (*args[1:], *kwargs.values()) if isinstance(each, torch.dtype)), tensor.dtype)
    with unset_fake_temporarily():
        ones = torch.ones(tensor.shape, dtype=dtype, device="cpu")
        return func(ones) if func in _AS_ARRAYS else ones
