# SPDX-License-Identifier: Apache-2.0
"""The position of a job in its data: the epoch, the batch, and the state that leads there again.

A loader with `state_dict` (torchdata's StatefulDataLoader) keeps its own position. Batches of other loaders are counted.
A standby begins the same pass with the generators as they were at its beginning, which gives the same order, and
leaves out the batches that were done."""
from __future__ import annotations

from typing import Any, Iterable, Iterator, Optional

from . import _generators, _loaders


class Position:
    def __init__(self) -> None:
        self.epoch = 0
        self.batch = 0  # the number of completed batches in this pass
        self.loader: Any = None  # the loader from attach()
        self._data: Any = None  # the data of this pass
        self._keeper: Any = None  # the object that knows the position in this pass, if there is one
        self._pass_begun = False
        self._at_begin: Optional[dict[str, Any]] = None  # the generators' state at the beginning of the pass
        self._arrived: Optional[dict[str, Any]] = None  # the position from a move, until the pass continues

    def save(self) -> dict[str, Any]:
        state: dict[str, Any] = {"epoch": self.epoch, "batch": self.batch, "begun": self._pass_begun,
                                 "at_begin": self._at_begin, "now": _generators.save()}
        if self._pass_begun and self._keeper is not None:
            state["loader"] = self._keeper.state_dict()
        elif self._pass_begun:
            state["order"] = _loaders.order_of(self._data)
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

    @property
    def done_before(self) -> int:
        """Returns the number of batches that the next pass leaves out, since they were done before the move."""
        return int(self._arrived["batch"]) if self._arrived is not None and self._arrived["begun"] else 0

    def batches(self, data: Iterable[Any]) -> Iterator[Any]:
        """Yields the batches of a pass that are left, and counts them. A batch is done at the barrier after it."""
        for batch in self._left(data):
            self.batch += 1
            yield batch

    def _left(self, data: Iterable[Any]) -> Iterator[Any]:
        self._data = data
        self._keeper = next((each for each in (data, self.loader) if _loaders.keeps_position(each)), None)
        arrived, self._arrived = self._arrived, None
        self._pass_begun = True
        if arrived is None or not arrived["begun"]:
            self.batch, self._at_begin = 0, _generators.save()
            return iter(data)
        self.batch, self._at_begin = arrived["batch"], arrived["at_begin"]
        if self._keeper is not None and "loader" in arrived:
            self._keeper.load_state_dict(arrived["loader"])
            return _loaders.with_generators(iter(data), arrived["now"])
        _generators.restore(arrived["at_begin"])
        return _loaders.left_of(data, self.batch, arrived["now"], arrived.get("order"))
