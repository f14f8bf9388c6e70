# SPDX-License-Identifier: Apache-2.0
"""Device memory as the package sees it: a pointer, a size, a type and a shape, read from the object that holds it."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional

from ._errors import UsageError

# The ckpt_dtype and the bytes of one element, for each type string of the array interface (without byte
# order).
DTYPES = {"u1": (1, 1), "i1": (2, 1), "u2": (3, 2), "i2": (4, 2), "u4": (5, 4), "i4": (6, 4), "u8": (7, 8),
          "i8": (8, 8), "f2": (9, 2), "bf16": (10, 2), "f4": (11, 4), "f8": (12, 8), "f8_e4m3": (13, 1),
          "f8_e5m2": (14, 1), "b1": (15, 1)}
KINDS = {"parameter": 1, "optimizer": 2, "buffer": 3, "cache": 4, "scratch": 5}
MAX_DIMS = 8


@dataclass(frozen=True)
class Layout:
    """The place, type and shape of a buffer. Type and shape have to be the same at both ends."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return DTYPES[self.dtype][1] * math.prod(self.shape)


class Buffer:
    """Device memory that `Job.alloc` has made. `Job.free` frees it, or the job's end."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.pointer, self.nbytes = pointer, nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.pointer, False), "version": 3}


def layout_of(name: str, memory: Any, nbytes: Optional[int] = None) -> Layout:
    """Returns the layout of `memory`: a device pointer (with `nbytes`), or an object with `__cuda_array_interface__`."""
    if isinstance(memory, int):
        if not nbytes:
            raise UsageError(f"buffer '{name}': a pointer needs nbytes")
        return Layout(memory, "u1", (nbytes,))
    described = getattr(memory, "__cuda_array_interface__", None)
    if described is None:
        raise UsageError(f"buffer '{name}': {type(memory).__name__} is neither a device pointer nor has "
                         "__cuda_array_interface__")
    dtype = described["typestr"].lstrip("<|=")
    if dtype not in DTYPES:
        raise UsageError(f"buffer '{name}': elements of type {described['typestr']} cannot be named")
    shape = tuple(described["shape"])
    layout = Layout(described["data"][0], dtype, shape if len(shape) <= MAX_DIMS else (math.prod(shape),))
    if not is_contiguous(shape, described.get("strides"), DTYPES[dtype][1]):
        raise UsageError(f"buffer '{name}': its elements are not contiguous; name a contiguous copy")
    return layout


def is_contiguous(shape: tuple[int, ...], strides: Optional[tuple[int, ...]], item: int) -> bool:
    expected = item
    for size, stride in zip(reversed(shape), reversed(strides or ())):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
