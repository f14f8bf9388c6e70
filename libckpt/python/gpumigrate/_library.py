# SPDX-License-Identifier: Apache-2.0
"""libckpt.so.1 by ctypes. This module finds it, declares the functions of ckpt.h and turns a status into an exception.

Nothing is loaded before `Session` is made. ctypes releases the interpreter's lock during a call, so other
threads run while a standby waits in ckpt_ready."""
from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import sys
from typing import Callable, Optional, Sequence

from ._driver import make_context_current
from ._errors import LibraryError

NAME = "libckpt.so.1"
ABI_VERSION = 1
OK, MOVED = 0, 1
ERROR_INVALID, ERROR_CONNECTION = -1, -4

_SAVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_SIGNATURES: dict[str, list[object]] = {
    "ckpt_init": [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint)],
    "ckpt_alloc": [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ulonglong)],
    "ckpt_free": [ctypes.c_void_p, ctypes.c_ulonglong],
    "ckpt_tensor": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulonglong, ctypes.c_size_t, ctypes.c_uint,
                    ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint],
    "ckpt_host_callbacks": [ctypes.c_void_p, ctypes.c_char_p, _SAVE, _LOAD, ctypes.c_void_p],
    "ckpt_write": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t],
    "ckpt_ready": [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint)],
    "ckpt_barrier": [ctypes.c_void_p],
    "ckpt_shutdown": [ctypes.c_void_p],
}


def candidates() -> list[str]:
    """Returns the paths of the library, in the order in which they are tried."""
    named = os.environ.get("GPUMIGRATE_LIBCKPT")
    if named:
        return [named]
    found = [pathlib.Path(__file__).with_name(NAME)]
    command = shutil.which("gpumigrate")
    if command:
        found.append(pathlib.Path(command).resolve().parent.parent / "lib" / NAME)
    return [str(path) for path in found if path.exists()] + [NAME]


def load() -> ctypes.CDLL:
    library, reasons = None, []
    for name in candidates():
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as error:
            reasons.append(str(error))
    if library is None:
        raise LibraryError(f"{NAME} cannot be loaded ({'; '.join(reasons)}): set GPUMIGRATE_LIBCKPT to its path")
    if not hasattr(library, "ckpt_init"):
        raise LibraryError(f"{library._name} is not {NAME}")
    for function, arguments in _SIGNATURES.items():
        getattr(library, function).argtypes = arguments
        getattr(library, function).restype = ctypes.c_int
    library.ckpt_last_error.restype = ctypes.c_char_p
    library.ckpt_abi_version.restype = ctypes.c_uint32
    version = library.ckpt_abi_version()
    if version < ABI_VERSION:
        raise LibraryError(f"{library._name} has ABI version {version} of ckpt.h, this package needs {ABI_VERSION}")
    return library


class Session:
    """The only session of this process, and its host state, which is one entry of bytes."""

    def __init__(self) -> None:
        self.library = load()
        self.handle = ctypes.c_void_p()
        role = ctypes.c_uint()
        self._check(self.library.ckpt_init(None, ctypes.byref(self.handle), ctypes.byref(role)))
        self.standby = role.value == 1
        self.failure: Optional[BaseException] = None  # the exception of the last callback
        # Work to do before the session ends: use of its memory must end, and torch's allocator must not call
        # an ended session.
        self.before_its_end: Callable[[], object] = lambda: None
        self._callbacks: list[object] = []  # keeps references, because ctypes does not keep objects that only
                                            # C refers to

    def _check(self, status: int) -> None:
        if status not in (OK, MOVED):
            raise LibraryError(self.library.ckpt_last_error().decode(errors="replace"), status)

    def alloc(self, nbytes: int) -> int:
        make_context_current()
        pointer = ctypes.c_ulonglong()
        self._check(self.library.ckpt_alloc(self.handle, nbytes, ctypes.byref(pointer)))
        return pointer.value

    def free(self, pointer: int) -> None:
        self._check(self.library.ckpt_free(self.handle, pointer))

    def tensor(self, name: str, pointer: int, nbytes: int, dtype: int, shape: Sequence[int], kind: int) -> None:
        dims = (ctypes.c_uint64 * len(shape))(*shape)
        self._check(self.library.ckpt_tensor(self.handle, name.encode(), pointer, nbytes, dtype, len(shape), dims,
                                             kind))

    def host_state(self, name: str, save: Callable[[], bytes], load_back: Callable[[bytes], None]) -> None:
        """Registers the two callbacks of host state. An exception of one fails the pause or the resume, and stays in
        `failure`."""
        def on_save(_user: object, writer: int) -> int:
            try:
                data = save()
            except BaseException as error:  # noqa: BLE001  (no exception may leave through C)
                self.failure = error
                return ERROR_INVALID
            return int(self.library.ckpt_write(writer, data, len(data)))

        def on_load(_user: object, data: int, nbytes: int) -> int:
            try:
                load_back(ctypes.string_at(data, nbytes))
            except BaseException as error:  # noqa: BLE001
                self.failure = error
                return ERROR_INVALID
            return OK

        functions = (_SAVE(on_save), _LOAD(on_load))
        self._callbacks.append(functions)
        self._check(self.library.ckpt_host_callbacks(self.handle, name.encode(), *functions, None))

    def ready(self) -> bool:
        """Blocks in a standby. Returns whether this instance continues where the source has stopped."""
        start = ctypes.c_uint()
        self._run(self.library.ckpt_ready, self.handle, ctypes.byref(start))
        return start.value == 1

    def barrier(self) -> None:
        self._run(self.library.ckpt_barrier, self.handle)

    def _run(self, function: Callable[..., int], *arguments: object) -> None:
        """Makes a call that may run callbacks. An exception that they raised is the cause of its error."""
        self.failure = None
        status = function(*arguments)
        if self.failure is not None:
            raise self.failure
        self._check(status)

    def shutdown(self) -> None:
        self.before_its_end()
        handle, self.handle = self.handle, ctypes.c_void_p()
        self._check(self.library.ckpt_shutdown(handle))


def report(text: str) -> None:
    """Writes one line into the job's log."""
    print(f"gpumigrate: {text}", file=sys.stderr, flush=True)
