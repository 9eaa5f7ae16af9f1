"""What the operators compute: torch's own kernels for the CPU, under the names that torch_npu asks for.

`install()` connects them to the stand-in. Enough for the tests and for examples/train_digits.py; torch_npu
knows thousands more, and one that is not here is refused, as the vendor's compiler refuses an unknown one.
"""

import ctypes
import importlib
import json
import math
import sys
import traceback


class _Torch:
    """torch, imported by the first kernel that runs: the stand-in is in place before torch is."""

    def __getattr__(self, name):
        return getattr(importlib.import_module("torch"), name)


torch = _Torch()

#: Take the input tensors and the attributes, give one output or several.
KERNELS = {}
#: Take the arguments of the C function as tensors, lists and numbers, and write into those that are outputs.
_NEWER = {}

#: aclDataType, as far as our operators use it. Seeds are unsigned, with which torch hardly computes.
_TYPES = {
    0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "int16", 8: "int32",
    9: "int64", 10: "int64", 11: "float64", 12: "bool", 27: "bfloat16",
}  # fmt: skip
#: ACL_ERROR_RT_AICORE_EXCEPTION: what a device reports when a kernel fails.
_KERNEL_FAILED = 507015


def kernel(*names):
    def register(function):
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return register


def newer(*names):
    """Register a kernel of CANN's newer library, by its C functions' names without `aclnn`."""

    def register(function):
        _NEWER.update(dict.fromkeys((f"aclnn{name}" for name in names), function))
        return function

    return register


def _elementwise(**operators):
    """Operators that are one function of torch over all their inputs."""
    for name, function in operators.items():
        KERNELS[name] = lambda inputs, _, function=function: getattr(torch, function)(
            *inputs
        )


_elementwise(
    Abs="abs", Add="add", Ceil="ceil", ClipByValueV2="clamp", Cos="cos", Equal="eq", Exp="exp", Floor="floor",
    FloorDiv="floor_divide", FloorMod="remainder", Greater="gt", GreaterEqual="ge", IsFinite="isfinite",
    IsNan="isnan", Less="lt", LessEqual="le", Log="log", LogicalAnd="logical_and", LogicalNot="logical_not",
    LogicalOr="logical_or", Maximum="maximum", Minimum="minimum", Mul="mul", Neg="neg", NotEqual="ne",
    OnesLike="ones_like", Pow="pow", RealDiv="div", Reciprocal="reciprocal", Relu="relu", Rsqrt="rsqrt",
    Select="where", Sigmoid="sigmoid", Sign="sign", Sin="sin", Sqrt="sqrt", Square="square", Sub="sub",
    Tanh="tanh", ZerosLike="zeros_like",
)  # fmt: skip


def ints(tensor):
    """The integers of an input that holds a shape, axes or an order."""
    return [int(value) for value in tensor.flatten()]


def _axes(inputs, attributes):
    """The axes to reduce over, as an input or an attribute; empty for all."""
    axes = (
        ints(inputs[1])
        if len(inputs) > 1
        else attributes.get("axes", attributes.get("axis", []))
    )
    return axes if isinstance(axes, list) else [axes]


def _reduction(function):
    def reduce(inputs, attributes):
        axes = _axes(inputs, attributes) or list(range(inputs[0].dim()))
        return getattr(torch, function)(
            inputs[0], dim=axes, keepdim=attributes.get("keep_dims", False)
        )

    return reduce


def generator(*seeds):
    """A generator that the device's seed and offset determine, as they determine the vendor's numbers."""
    mixed = hash(tuple(number for seed in seeds for number in ints(seed))) & (2**63 - 1)
    return torch.Generator().manual_seed(mixed)


KERNELS.update(
    {
        "ReduceAll": _reduction("all"),
        "ReduceAny": _reduction("any"),
        "ReduceSum": _reduction("sum"),
        "ReduceMean": _reduction("mean"),
        "ReduceMax": _reduction("amax"),
        "ReduceMin": _reduction("amin"),
        **dict.fromkeys(
            ("Cast", "Identity", "TensorMove", "AsStrided"), lambda x, _: x[0]
        ),
        "Fill": lambda x, _: x[1].flatten()[0].expand(ints(x[0])),
        "BroadcastTo": lambda x, _: x[0].expand(ints(x[1])),
        "Transpose": lambda x, _: x[0].permute(ints(x[1])),
        "ConcatD": lambda x, given: torch.cat(list(x), given["concat_dim"]),
        "ReverseV2": lambda x, _: x[0].flip(ints(x[1])),
        "Range": lambda x, _: torch.arange(
            *(each.item() for each in x), dtype=x[0].dtype
        ),
        "LinSpace": lambda x, _: torch.linspace(
            *(each.item() for each in x), dtype=x[0].dtype
        ),
        "Cumsum": lambda x, _: x[0].cumsum(int(x[1])),
        "Sort": lambda x, given: tuple(x[0].sort(given["axis"], given["descending"])),
        "TensorEqual": lambda x, _: torch.tensor(torch.equal(x[0], x[1])),
        **dict.fromkeys(
            ("Axpy", "AxpyV2"),
            lambda x, given: torch.add(
                *x[:2], alpha=x[2].item() if len(x) > 2 else given.get("alpha", 1.0)
            ),
        ),
        "TanhGrad": lambda x, _: torch.ops.aten.tanh_backward(x[1], x[0]),
        "ReluGrad": lambda x, _: torch.ops.aten.threshold_backward(x[0], x[1], 0),
        "StatelessRandomNormalV2": lambda x, _: torch.randn(
            ints(x[0]), generator=generator(x[1], x[2])
        ),
        "StatelessRandomUniformV2": lambda x, _: torch.rand(
            ints(x[0]), generator=generator(x[1], x[2])
        ),
    }
)


@kernel("PadV3")
def _pad(inputs, attributes):
    """Before and after each axis, the first axis first; torch's function has the last first."""
    amounts = ints(inputs[1])
    pairs = [amounts[place : place + 2] for place in range(0, len(amounts), 2)]
    turned = [amount for pair in reversed(pairs) for amount in pair]
    return torch.nn.functional.pad(
        inputs[0], turned, value=inputs[2].item() if len(inputs) > 2 else 0
    )


@kernel("Index")
def _index(inputs, attributes):
    """The second input says of each axis whether it is indexed; the indices themselves come last."""
    indices = iter(inputs[3:])
    return inputs[0][
        tuple(
            next(indices).long() if asked else slice(None) for asked in ints(inputs[1])
        )
    ]


@kernel("MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2")
def _matmul(inputs, attributes):
    one, other = inputs[0], inputs[1]
    if attributes.get("transpose_x1", attributes.get("adj_x1", False)):
        one = one.transpose(-1, -2)
    if attributes.get("transpose_x2", attributes.get("adj_x2", False)):
        other = other.transpose(-1, -2)
    return (
        torch.addmm(inputs[2], one, other)
        if len(inputs) > 2
        else torch.matmul(one, other)
    )


# --- the connection ------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    """`struct tensor` of standin.h."""

    _fields_ = (
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", ctypes.c_int64 * 16),
        ("strided", ctypes.c_int),
        ("strides", ctypes.c_int64 * 16),
        ("address", ctypes.c_void_p),
    )

    def on_host(self):
        """The same memory as a tensor of the CPU."""
        dtype = getattr(torch, _TYPES[self.dtype])
        shape = list(self.shape[: self.rank])
        count = math.prod(shape)
        if not count or not self.address:
            return torch.empty(shape, dtype=dtype, device="cpu")
        strides = list(self.strides[: self.rank])
        if self.strided:
            count = 1 + sum(
                (size - 1) * stride for size, stride in zip(shape, strides, strict=True)
            )
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(self.address)
        numbers = torch.frombuffer(memory, dtype=dtype, count=count)
        return (
            numbers.as_strided(shape, strides) if self.strided else numbers.view(shape)
        )


def _argument(told, tensors):
    """What newer.c wrote of an argument, with the tensors in it."""
    if isinstance(told, list):
        return [_argument(each, tensors) for each in told]
    return tensors[told["tensor"]] if isinstance(told, dict) else told


_Tensors = (ctypes.c_int, ctypes.POINTER(_Tensor))
_Compute = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, *_Tensors, *_Tensors
)


@_Compute
def _compute(name, attributes, inputs, first, outputs, results):
    """Run one operator, on its stream's thread; an error becomes the stream's, for it must not reach C."""
    try:
        with torch.no_grad():
            given = [first[i].on_host() for i in range(inputs)]
            told = json.loads(attributes)
            if isinstance(
                told, list
            ):  # of the newer ones, which know their outputs themselves
                _NEWER[name.decode()](*(_argument(each, given) for each in told))
                return 0
            made = KERNELS[name.decode()](given, told)
            for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
                if i < outputs and value is not None:
                    target = results[i].on_host()
                    target.copy_(value.reshape(target.shape))
    except Exception:
        shapes = [
            (list(first[i].shape[: first[i].rank]), first[i].dtype)
            for i in range(inputs)
        ]
        print(
            f"[stand-in] {name.decode()} {attributes.decode()} {shapes} failed:",
            file=sys.stderr,
        )
        traceback.print_exc()
        return _KERNEL_FAILED
    return 0


def install(library="libascendcl.so"):
    """Connect the kernels to the stand-in, which the loader finds as it finds the vendor's library."""
    for module in ("layers", "newer"):
        importlib.import_module(f"stand_in.{module}")
    standin = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    for name in (*KERNELS, *_NEWER):
        standin.standin_add_operator(name.encode())
    standin.standin_set_compute(_compute)
    return standin
