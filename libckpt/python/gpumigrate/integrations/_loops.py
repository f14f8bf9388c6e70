# SPDX-License-Identifier: Apache-2.0
"""The part that all frameworks use. Their loop takes batches from a loader, and calls back after a step."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

from .._errors import UsageError
from .._job import Job


class CountedLoader:
    """A loader that knows the position of the job. Each iteration is a pass, and a moved job continues the pass that it was in.

    Frameworks make the iterator before they call back, so the job is taken at the first batch."""

    def __init__(self, loader: Any, job: Callable[[], Optional[Job]]) -> None:
        self._loader, self._job = loader, job

    def __iter__(self) -> Iterator[Any]:
        job = self._job()
        if job is None:
            raise UsageError("the loader was used before the callback was called: pass the callback to the trainer")
        if not job.active:
            yield from self._loader
            return
        job.start()
        yield from self._batches(job)

    def _batches(self, job: Job) -> Iterator[Any]:
        position = job._position
        position.begin_epoch(position.epoch + 1)
        yield from position.batches(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
