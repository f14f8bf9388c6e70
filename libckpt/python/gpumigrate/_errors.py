# SPDX-License-Identifier: Apache-2.0
"""The errors and warnings of the package. Each message is one line: the cause, and what to do about it."""


class Error(RuntimeError):
    """Base of all errors of this package."""


class UsageError(Error):
    """The program uses the package wrongly: a call out of order, a name twice, state that cannot move."""


class StateChanged(UsageError):
    """A named tensor or buffer is not what was named: freed, renamed, reshaped, replaced."""


class Mismatch(Error):
    """The state that arrived at a standby does not fit the state that the standby has registered."""


class LibraryError(Error):
    """libckpt was not found, or refused a call. `status` is its ckpt_status, where there is one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class MoveWarning(UserWarning):
    """A move was refused at the barrier; the job runs on here."""
