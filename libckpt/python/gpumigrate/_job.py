# SPDX-License-Identifier: Apache-2.0
"""A job: the state that moves with it, its start, and its barrier. It does not need torch, nor libckpt outside gpumigrate.

Threads: one thread makes the job, registers state and steps. Between two steps no other thread touches named memory."""
from __future__ import annotations

import atexit
import itertools
import os
import pickle
import sys
import warnings
from typing import Any, Callable, Iterable, Iterator, Optional

from ._buffers import DTYPES, KINDS, Buffer, Layout, layout_of
from ._driver import Driver
from ._errors import Error, LibraryError, Mismatch, MoveWarning, StateChanged, UsageError
from ._library import ERROR_CONNECTION, Session, report
from ._position import Position

GetState = Callable[[], Any]
SetState = Callable[[Any], None]
SHIM = "libckpt_shim.so"
FIRST_STEPS = 2  # the number of first steps after each of which all named state is compared with its memory


def is_cooperative() -> bool:
    """Returns whether gpumigrate has started this process in cooperative mode. In transparent mode the whole process moves
    as it is."""
    return bool(os.environ.get("CKPT_SOCKET")) and SHIM not in os.environ.get("LD_PRELOAD", "")


# The flags for missing and for new states, with the values of libckpt/inprocess/api/allowed_differences.h.
_ALLOW_MISSING, _ALLOW_NEW = 1, 2


class Job:
    """The job of this process, which `attach` makes. It is `active` if gpumigrate has started the process, and a `standby`
    while it waits for the end of a move."""

    def __init__(self) -> None:
        self._session = Session() if is_cooperative() else None
        self._driver: Optional[Driver] = None
        self._process = os.getpid()
        self._buffers: dict[str, tuple[Any, Layout]] = {}
        self._states: dict[str, tuple[GetState, SetState]] = {}
        self._checks: list[Callable[[], None]] = []
        self._to_start: list[Callable[[], None]] = []
        self._position = Position()
        self._starts = self._started = False
        self._steps = 0
        self.resumed = False
        if self._session is not None:
            self._session.host_state("gpumigrate", self._save, self._load)
            self._checks.append(self._check_buffers)
            self.register("gpumigrate.position", self._position.save, self._position.restore)
            atexit.register(self._at_exit)

    @property
    def active(self) -> bool:
        return self._session is not None

    @property
    def standby(self) -> bool:
        return self._session is not None and self._session.standby

    # ---- state that moves ----

    def alloc(self, nbytes: int) -> Buffer:
        """Allocates device memory that can be moved while the job runs. Its content is undefined. If no context is current
        in this thread, the primary context of the first GPU becomes current."""
        return Buffer(self._memory().alloc(nbytes), nbytes)

    def free(self, buffer: Buffer) -> None:
        for name, (_, layout) in self._buffers.items():
            if buffer.pointer <= layout.pointer < buffer.pointer + buffer.nbytes:
                raise UsageError(f"buffer '{name}' lies in the memory to be freed: named memory must stay allocated")
        self._memory().free(buffer.pointer)

    def buffer(self, name: str, memory: Any, nbytes: Optional[int] = None, *, kind: str = "buffer") -> None:
        """Names device memory: a `Buffer`, an object with `__cuda_array_interface__`, or a pointer and `nbytes`."""
        self._name(name, memory, layout_of(name, memory, nbytes), kind)

    def register(self, name: str, get_state: GetState, set_state: SetState) -> None:
        """Registers host state. `get_state` returns a value that pickle takes. A standby passes it to `set_state` before it
        starts."""
        self._refuse_late(f"host state '{name}'")
        if name in self._states:
            raise UsageError(f"host state '{name}' is registered already")
        self._states[name] = (get_state, set_state)

    # ---- the start ----

    def warmup(self, function: Callable[[], None]) -> None:
        """Runs `function` now if this is a standby, while the source still works: it compiles, tunes, captures. The move
        overwrites its changes of named memory and registered state."""
        self._refuse_late("a warm-up")
        if self.standby:
            function()

    def on_start(self, function: Callable[[], None]) -> None:
        """Runs `function` once the job is to work here. It opens trackers, ports and output files."""
        self._refuse_late("a function for the start")
        self._to_start.append(function)

    def start(self) -> bool:
        """Starts the job: all state is named. A standby waits here for its move. `epochs` and `steps` call this. Returns
        whether the job was resumed."""
        if self._started:
            return self.resumed
        self._starts = True
        self._check_all()
        if self._session is not None:
            self.resumed = self._wait_for_the_start(self._session)
        self._started = True
        for function in self._to_start:
            function()
        return self.resumed

    # ---- steps ----

    def epochs(self, count: Optional[int] = None) -> Iterator[int]:
        """Yields the numbers of epochs up to `count`, from the one in which a moved job is."""
        self.start()
        first = self._position.epoch
        for epoch in itertools.count(first) if count is None else range(first, count):
            self._position.begin_epoch(epoch)
            yield epoch

    def steps(self, data: Optional[Iterable[Any]] = None, *, accumulate: int = 1) -> Iterator[Any]:
        """Yields the batches of `data` (by default the loader of `attach`), with a barrier after each `accumulate` of them.
        It is one pass, or one for each epoch of `epochs`."""
        data = self._position.loader if data is None else data
        if data is None:
            raise UsageError("steps() has no data: pass data to it, or use attach(loader=...)")
        self.start()
        if self._session is None:
            yield from data
            return
        if self._position.pass_begun:
            raise UsageError("steps() begins a second pass, and a moved job would not know which one it is in: "
                             "put it into `for epoch in job.epochs(...)`")
        for batch in self._position.batches(data):
            yield batch
            if self._position.batch % accumulate == 0:
                self.barrier()

    def barrier(self) -> None:
        """Is called once a step by loops without `steps`. The job may leave this process here."""
        if not self._started:
            raise UsageError("barrier() before start(): name all state, then call start()")
        if self._session is None:
            return
        self._steps += 1
        if self._steps <= FIRST_STEPS:
            self._check_all()
        try:
            self._session.barrier()
        except Exception as error:  # noqa: BLE001 (a callback may raise any exception)
            if isinstance(error, LibraryError) and error.status == ERROR_CONNECTION:
                raise
            # The pause was refused, and the job continues: a move must never terminate a job.
            warnings.warn(f"a move was refused: {error}", MoveWarning, stacklevel=2)

    def finish(self) -> None:
        """Ends the job, which has ended its work by itself. Its memory is freed. The interpreter's end does the same."""
        session, self._session = self._session, None
        if session is not None and self._process == os.getpid():
            atexit.unregister(self._at_exit)
            session.shutdown()

    # ---- hooks for other modules of the package ----

    def _name(self, name: str, memory: Any, layout: Layout, kind: str) -> None:
        self._refuse_late(f"buffer '{name}'")
        if name in self._buffers:
            raise UsageError(f"buffer '{name}' is named already")
        if kind not in KINDS:
            raise UsageError(f"buffer '{name}': its kind is one of {', '.join(KINDS)}, not {kind!r}")
        if self._session is not None:
            self._session.tensor(name, layout.pointer, layout.nbytes, DTYPES[layout.dtype][0], layout.shape,
                                 KINDS[kind])
        self._buffers[name] = (memory, layout)

    def _add_check(self, check: Callable[[], None]) -> None:
        self._checks.append(check)

    def _memory(self) -> Any:
        if self._session is not None:
            return self._session
        self._driver = self._driver or Driver()
        return self._driver

    def _wait_for_the_start(self, session: Session) -> bool:
        try:
            return session.ready()
        except BaseException as error:
            if not session.standby:
                raise
            # The job is paused at its source and continues there once this process has exited. No handler,
            # thread or debugger of the program may delay that.
            report(f"this standby cannot go on: {error}")
            os._exit(1)

    def _refuse_late(self, what: str) -> None:
        if self._started:
            raise UsageError(f"{what} comes too late: the job has started, and its standby has only what was named before "
                             "start(), epochs() or steps()")

    def _check_buffers(self) -> None:
        for name, (memory, layout) in self._buffers.items():
            if hasattr(memory, "__cuda_array_interface__"):
                compare(name, layout, layout_of(name, memory))

    def _check_all(self) -> None:
        for check in self._checks:
            check()

    # ---- callbacks of libckpt, at a barrier and in ckpt_ready ----

    def _save(self) -> bytes:
        self._check_all()
        data = pickle.dumps({name: pickle.dumps(get()) for name, (get, _) in self._states.items()})
        # The process exits without Python's exit handlers, so printed text must be flushed to the log.
        sys.stdout.flush()
        sys.stderr.flush()
        return data

    def _load(self, data: bytes) -> None:
        arrived = pickle.loads(data)
        # A standby that is a new program may have different states (`gpumigrate migrate --exec --allow`).
        allowed = int(os.environ.get("CKPT_ALLOWED_DIFFERENCES", "0"))
        new, gone = self._states.keys() - arrived.keys(), arrived.keys() - self._states.keys()
        if new and not allowed & _ALLOW_NEW:
            raise Mismatch(f"host state '{min(new)}' is registered here and was not at the source")
        if gone and not allowed & _ALLOW_MISSING:
            raise Mismatch(f"host state '{min(gone)}' came from the source and is not registered here")
        for name, (_, set_state) in self._states.items():
            if name in arrived:
                set_state(pickle.loads(arrived[name]))

    def _at_exit(self) -> None:
        if self._process != os.getpid():
            return
        if not self._starts:
            report("the job was attached and never stepped: without steps() or barrier() it could not be moved")
        try:
            self.finish()
        except Error as error:
            report(str(error))


def compare(name: str, named: Layout, now: Layout) -> None:
    if now.pointer == 0:
        raise StateChanged(f"'{name}' was freed after it was named")
    if (now.dtype, now.shape) != (named.dtype, named.shape):
        raise StateChanged(f"'{name}' was named as {named.dtype}{list(named.shape)} and is {now.dtype}{list(now.shape)} now")
    if now.pointer != named.pointer:
        raise StateChanged(f"'{name}' lies in other memory than when it was named: change it in place, or attach later")
