# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver by ctypes. It makes a context for programs that have none, and memory outside gpumigrate."""
from __future__ import annotations

import ctypes

from ._errors import LibraryError

NAME = "libcuda.so.1"


def load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(NAME)
    except OSError as error:
        raise LibraryError(f"there is no CUDA driver to allocate memory with: {error}") from None


def make_context_current() -> None:
    """Makes the primary context of the first GPU current, which torch and the runtime API use, too. A context that is
    current in this thread already stays."""
    driver = load()

    def call(name: str, *arguments: object) -> None:
        status = getattr(driver, name)(*arguments)
        if status != 0:
            raise LibraryError(f"{name} returned {status}: there is no context of a GPU to allocate memory in")

    context, device = ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuCtxGetCurrent", ctypes.byref(context))
    if context.value is not None:
        return
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


class Driver:
    """The driver's own memory, for a job that gpumigrate has not started."""

    def __init__(self) -> None:
        self.library = load()

    def alloc(self, nbytes: int) -> int:
        make_context_current()
        pointer = ctypes.c_uint64()
        status = self.library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        if status != 0:
            raise LibraryError(f"cuMemAlloc of {nbytes} bytes returned {status}")
        return pointer.value

    def free(self, pointer: int) -> None:
        status = self.library.cuMemFree_v2(ctypes.c_uint64(pointer))
        if status != 0:
            raise LibraryError(f"cuMemFree returned {status}")
