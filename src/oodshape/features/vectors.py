"""Two vector operations that the compiler does not find by itself, for the loops in `kernels`.

`add_pair` adds to two neighbouring numbers at once, on any processor. `wide_theta` looks theta up for 16 values at
once from a table that lies in registers; it needs AVX-512 and is several times faster than a gather on AMD's.
"""

from __future__ import annotations

import os
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
TABLE = 128  # numbers in eight registers
# With NUMBA_CPU_NAME the code is made for another processor than this one.
AVAILABLE = "NUMBA_CPU_NAME" not in os.environ and bool(binding.get_host_cpu_features().get("avx512f"))

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)
_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT32, LANES)
_PAIR = ir.VectorType(_DOUBLE, 2)


def _add_pair(typing, table, row, column, first, second):  # type: ignore[no-untyped-def]
    """table[row, column : column + 2] += (first, second), for a contiguous float64 table."""
    del typing, row, column, first, second
    signature = types.void(table, types.uint32, types.intp, types.float64, types.float64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        width = builder.extract_value(array.shape, 1)
        place = builder.add(builder.mul(builder.zext(args[1], _INT64), width), args[2])
        pointer = builder.bitcast(builder.gep(array.data, [place]), _PAIR.as_pointer())
        pair = builder.insert_element(ir.Constant(_PAIR, ir.Undefined), args[3], ir.Constant(_INT32, 0))
        pair = builder.insert_element(pair, args[4], ir.Constant(_INT32, 1))
        builder.store(builder.fadd(builder.load(pointer, align=8), pair), pointer, align=8)
        return context.get_dummy_value()

    return signature, generate


add_pair: Any = intrinsic(_add_pair)


def _wide_theta(typing, z, origin, scale, last, table, out):  # type: ignore[no-untyped-def]
    """Out[j] = table[cell of z[j]] for the first values, LANES at a time; gives how many were done.

    The arithmetic is that of `kernels._cell`, operation by operation. The table has TABLE numbers.
    """
    del typing, origin, scale, last
    number = types.float32
    signature = types.intp(z, number, number, number, table, out)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        z, table, out = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 4, 5))
        origin, scale, last = (_spread(builder, args[k]) for k in (1, 2, 3))
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        registers = [_load(builder, table.data, ir.Constant(_INT64, LANES * k)) for k in range(TABLE // LANES)]
        length = builder.extract_value(z.shape, 0)
        whole = builder.and_(length, ir.Constant(length.type, -LANES))
        start, step = ir.Constant(length.type, 0), ir.Constant(length.type, LANES)
        with cgutils.for_range_slice(builder, start, whole, step, inc=True) as (j, _):
            position = builder.fmul(builder.fsub(_load(builder, z.data, j), origin), scale)
            position = builder.select(builder.fcmp_ordered(">", position, zero), position, zero)
            position = builder.select(builder.fcmp_ordered("<", position, last), position, last)
            theta = _look_up(builder, registers, builder.fptosi(position, _INTS))
            builder.store(theta, builder.bitcast(builder.gep(out.data, [j]), _FLOATS.as_pointer()), align=4)
        return whole

    return signature, generate


wide_theta: Any = intrinsic(_wide_theta)


def _look_up(builder: Any, registers: list[Any], cells: Any) -> Any:
    """The table's numbers at the cells: one permutation of two registers per 32 cells, then the right one of each."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS, _INTS, _FLOATS])
    name = "llvm.x86.avx512.vpermi2var.ps.512"
    permute = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    pairs = zip(registers[::2], registers[1::2], strict=True)
    found = [builder.call(permute, [low, cells, high]) for low, high in pairs]
    bit = 2 * LANES
    while len(found) > 1:
        mask = builder.and_(cells, ir.Constant(_INTS, [bit] * LANES))
        upper = builder.icmp_signed("!=", mask, ir.Constant(_INTS, [0] * LANES))
        found = [builder.select(upper, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
        bit *= 2
    return found[0]


def _spread(builder: Any, value: Any) -> Any:
    """A number in every lane."""
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(_INTS, [0] * LANES))


def _load(builder: Any, pointer: Any, place: Any) -> Any:
    """LANES numbers from a place that need not be aligned."""
    return builder.load(builder.bitcast(builder.gep(pointer, [place]), _FLOATS.as_pointer()), align=4)
