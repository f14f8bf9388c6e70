# SPDX-License-Identifier: Apache-2.0
"""The errors and warnings of the package. Each message is one line with the cause and the remedy."""


class Error(RuntimeError):
    """The base of all errors of this package."""


class UsageError(Error):
    """The program uses the package wrongly: a call is out of order, a name occurs twice, or state cannot move."""


class StateChanged(UsageError):
    """A named tensor or buffer is not what was named: it was freed, renamed, reshaped or replaced."""


class Mismatch(Error):
    """The state that arrived at a standby does not fit the state that the standby has registered."""


class LibraryError(Error):
    """libckpt was not found, or refused a call. `status` is its ckpt_status, or 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class MoveWarning(UserWarning):
    """A move was refused at the barrier, and the job runs on here."""
