# SPDX-License-Identifier: Apache-2.0
"""Where a job is in its data: the epoch, the batch, and what it takes to come there again.

A loader with `state_dict` (torchdata's StatefulDataLoader) keeps its own position. Of others batches are counted. A
standby begins the same pass with the generators as they were at its beginning, which gives the same order, and
leaves out the batches that were done."""
from __future__ import annotations

import collections.abc
import itertools
import sys
from typing import Any, Iterable, Iterator, Optional

from . import _generators
from ._library import report


class Position:
    def __init__(self) -> None:
        self.epoch = 0
        self.batch = 0  # batches of this pass that are done
        self.loader: Any = None  # the one of attach()
        self._keeper: Any = None  # of this pass: what knows where it is, if anything does
        self._pass_begun = False
        self._at_begin: Optional[dict[str, Any]] = None  # generators
        self._arrived: Optional[dict[str, Any]] = None  # of a move, until the pass goes on

    def save(self) -> dict[str, Any]:
        state: dict[str, Any] = {"epoch": self.epoch, "batch": self.batch, "begun": self._pass_begun,
                                 "at_begin": self._at_begin, "now": _generators.save()}
        if self._pass_begun and self._keeper is not None:
            state["loader"] = self._keeper.state_dict()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]
        self._arrived = state
        _generators.restore(state["now"])

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self._pass_begun = epoch, False

    @property
    def pass_begun(self) -> bool:
        return self._pass_begun

    def batches(self, data: Iterable[Any]) -> Iterator[Any]:
        """The batches of a pass that are left, counted. A batch counts as done at the barrier after it."""
        for batch in self._left(data):
            self.batch += 1
            yield batch

    def _left(self, data: Iterable[Any]) -> Iterator[Any]:
        self._keeper = next((each for each in (data, self.loader) if keeps_position(each)), None)
        arrived, self._arrived = self._arrived, None
        self._pass_begun = True
        if arrived is None or not arrived["begun"]:
            self.batch, self._at_begin = 0, _generators.save()
            return iter(data)
        self.batch, self._at_begin = arrived["batch"], arrived["at_begin"]
        if self._keeper is not None and "loader" in arrived:
            self._keeper.load_state_dict(arrived["loader"])
            return _with_generators(iter(data), arrived["now"])
        _generators.restore(arrived["at_begin"])
        return left_of(data, self.batch, arrived["now"])


def keeps_position(data: Any) -> bool:
    return hasattr(data, "state_dict") and hasattr(data, "load_state_dict")


def left_of(data: Any, done: int, now: dict[str, Any]) -> Iterator[Any]:
    """The batches after the first `done`, and a line in the log about how they were left out. The order of a pass is
    drawn before the generators are set to `now`, what changes a batch at random after it."""
    kind = type(data).__name__
    if isinstance(data, collections.abc.Sequence):
        return _with_generators(iter(data[done:]), now)
    sampler = SkippingSampler(data, done, now)
    if not _is_torch_loader(data):
        report(f"{done} batches of {kind} were read and dropped: it has no state_dict")
        return iter(sampler)
    report(f"the sampler of {kind} was moved forward by {done} batches, which were not loaded"
           + ("; random changes in its worker processes begin with the pass's seed" if data.num_workers else ""))
    return iter(_with_sampler(data, SkippingSampler(data.batch_sampler, done, now)))


def _with_generators(batches: Iterator[Any], now: dict[str, Any]) -> Iterator[Any]:
    _generators.restore(now)
    return batches


class SkippingSampler:
    """What `items` gives after its first `done`. The generators are `now` once those are drawn."""

    def __init__(self, items: Any, done: int, now: dict[str, Any]) -> None:
        self.items, self.done, self.now = items, done, now

    def __iter__(self) -> Iterator[Any]:
        left = iter(self.items)
        for _ in itertools.islice(left, self.done):
            pass
        _generators.restore(self.now)
        yield from left

    def __len__(self) -> int:
        return max(0, len(self.items) - self.done)


def _is_torch_loader(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and type(data) is torch.utils.data.DataLoader and data.batch_sampler is not None


def _with_sampler(loader: Any, sampler: SkippingSampler) -> Any:
    """The same DataLoader of torch with another sampler of batches."""
    return type(loader)(
        loader.dataset, batch_sampler=sampler, num_workers=loader.num_workers, collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory, timeout=loader.timeout, worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context, generator=loader.generator,
        prefetch_factor=loader.prefetch_factor, persistent_workers=loader.persistent_workers)
