# SPDX-License-Identifier: Apache-2.0
"""Memory that can be moved, for tensors of torch: a pool of torch's own allocator over ckpt_alloc."""
from __future__ import annotations

import contextlib
import ctypes
import importlib
import pathlib
from typing import Any, Iterator, Optional, Protocol

from ._errors import LibraryError
from ._library import Session


class Memory(Protocol):
    """The memory of tensors. `attach(memory=...)` takes another one for a device that torch does not know as its own."""

    def holds(self, tensor: Any) -> bool:
        """Returns whether the tensor is in device memory, or is to be put there. It is then named, and is no host state."""

    def place(self, tensor: Any) -> Any:
        """Returns a tensor with the same content in memory that can be moved."""

    def pointer(self, tensor: Any) -> int:
        """Returns its device pointer, or 0 if its memory was freed."""


class Hooks:
    """The two functions of allocator.c, over a session."""

    def __init__(self, session: Session) -> None:
        found = sorted(pathlib.Path(__file__).parent.glob("_allocator*.so"))
        if not found:
            raise LibraryError("the package was not built: its allocator for torch is missing; install its wheel (tools/wheel)")
        self.path = str(found[0])
        self._library = ctypes.CDLL(self.path)
        self._library.gpumigrate_use.argtypes = [ctypes.c_void_p] * 3
        self._library.gpumigrate_use.restype = None
        functions = [ctypes.cast(function, ctypes.c_void_p)
                     for function in (session.library.ckpt_alloc, session.library.ckpt_free)]
        self._library.gpumigrate_use(session.handle, *functions)

    def end(self) -> None:
        self._library.gpumigrate_use(None, None, None)


class PoolMemory:
    """GPU memory of torch. Only named tensors are put into the pool. All others stay where they are."""

    def __init__(self, session: Optional[Session]) -> None:
        self._session = session
        self._allocator: Any = None
        self._pool: Any = None

    def holds(self, tensor: Any) -> bool:
        return bool(tensor.device.type == "cuda")

    def place(self, tensor: Any) -> Any:
        torch = importlib.import_module("torch")
        with self._entered(torch):
            return torch.empty_like(tensor).copy_(tensor)

    def pointer(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    @contextlib.contextmanager
    def _entered(self, torch: Any) -> Iterator[None]:
        if self._pool is None:
            assert self._session is not None
            hooks = Hooks(self._session)

            def before_its_end() -> None:
                torch.cuda.synchronize()
                hooks.end()

            self._session.before_its_end = before_its_end
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(hooks.path, "gpumigrate_alloc", "gpumigrate_free")
            self._pool = torch.cuda.MemPool(self._allocator.allocator())
        with torch.cuda.use_mem_pool(self._pool):
            yield
