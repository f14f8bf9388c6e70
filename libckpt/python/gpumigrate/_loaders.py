# SPDX-License-Identifier: Apache-2.0
"""Loaders of batches. This module finds out which keep their position, and continues a pass without the batches that
were done.

Loaders of Accelerate, which Trainer of transformers uses, too, are wrapped around one of torch. The order of
their samples depends on the pass's number and on a seed of their sampler."""
from __future__ import annotations

import collections.abc
import itertools
import sys
from typing import Any, Iterator, Optional

from . import _generators
from ._library import report


def keeps_position(data: Any) -> bool:
    """Returns whether the loader keeps its position (torchdata's StatefulDataLoader). Accelerate's loaders have the
    functions in any case, so the loader beneath counts."""
    beneath = getattr(data, "base_dataloader", data)
    return all(hasattr(each, name) for each in (data, beneath) for name in ("state_dict", "load_state_dict"))


def order_of(data: Any) -> Optional[dict[str, Any]]:
    """Returns the values, beside the generators, on which the order of this pass depends, or None."""
    if not is_accelerated(data):
        return None
    return {"pass": data.iteration, "seed": getattr(_sampler_of(data), "initial_seed", None)}


def left_of(data: Any, done: int, now: dict[str, Any], order: Optional[dict[str, Any]] = None) -> Iterator[Any]:
    """Returns the batches after the first `done`, and logs how these were left out. The order of a pass is drawn before the
    generators are set to `now`, and random changes of a batch after it."""
    kind = type(data).__name__
    if isinstance(data, collections.abc.Sequence):
        return with_generators(iter(data[done:]), now)
    if order is not None:
        _set_order(data, order)
    base = data.base_dataloader if is_accelerated(data) else data
    if not _is_torch_loader(base):
        report(f"{done} batches of {kind} were read and dropped: it has no state_dict")
        return iter(SkippingSampler(data, done, now))
    report(f"the sampler of {kind} was moved forward by {done} batches, which were not loaded"
           + ("; random changes in its worker processes begin with the pass's seed" if base.num_workers else ""))
    rest = _with_sampler(base, SkippingSampler(base.batch_sampler, done, now))
    return iter(rest) if order is None else _accelerated(data, base, rest, order)


def with_generators(batches: Iterator[Any], now: dict[str, Any]) -> Iterator[Any]:
    _generators.restore(now)
    return batches


class SkippingSampler:
    """The elements of `items` after the first `done`. The generators are set to `now` once those are drawn."""

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

    def __getattr__(self, name: str) -> Any:
        if name == "items":  # this name is requested only before `items` is set
            raise AttributeError(name)
        return getattr(self.items, name)


def is_accelerated(data: Any) -> bool:
    return hasattr(data, "base_dataloader") and hasattr(data, "iteration") and hasattr(data, "set_epoch")


def _sampler_of(data: Any) -> Any:
    return getattr(getattr(data.base_dataloader, "batch_sampler", None), "sampler", None)


def _set_order(data: Any, order: dict[str, Any]) -> None:
    sampler = _sampler_of(data)
    if order["seed"] is not None and hasattr(sampler, "initial_seed"):
        sampler.initial_seed = order["seed"]
    data.set_epoch(order["pass"])


def _accelerated(data: Any, base: Any, rest: Any, order: dict[str, Any]) -> Iterator[Any]:
    """Yields this pass of `data` over `rest` in place of `base`. The next pass is complete again."""
    data.base_dataloader = rest
    try:
        yield from data
        data.set_epoch(order["pass"] + 1)  # Accelerate's own count does not advance after a pass without
                                           # batches
    finally:
        data.base_dataloader = base


def _is_torch_loader(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and type(data) is torch.utils.data.DataLoader and data.batch_sampler is not None


def _with_sampler(loader: Any, sampler: SkippingSampler) -> Any:
    """Returns the same DataLoader of torch with another sampler of batches."""
    return type(loader)(
        loader.dataset, batch_sampler=sampler, num_workers=loader.num_workers, collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory, timeout=loader.timeout, worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context, generator=loader.generator,
        prefetch_factor=loader.prefetch_factor, persistent_workers=loader.persistent_workers)
