# SPDX-License-Identifier: Apache-2.0
"""The package over the built libckpt, without a keeper; GPUMIGRATE_LIBCKPT names it."""
import os
import unittest
import unittest.mock

from gpumigrate import LibraryError
from gpumigrate._library import Session, candidates, load


class Library(unittest.TestCase):
    def test_session_refuses_repeated_calls_from_start_to_end(self):
        session = Session()
        self.addCleanup(session.shutdown)
        self.assertFalse(session.standby)
        session.host_state("state", lambda: b"", lambda data: None)
        with self.assertRaisesRegex(LibraryError, "exists already") as refused:
            session.host_state("state", lambda: b"", lambda data: None)
        self.assertEqual(refused.exception.status, -1)
        with self.assertRaisesRegex(LibraryError, "has a session already"):
            Session()
        self.assertFalse(session.ready())
        with self.assertRaisesRegex(LibraryError, "has been called already"):
            session.ready()
        session.barrier()

    def test_a_missing_library_is_reported(self):
        with unittest.mock.patch.dict(os.environ, {"GPUMIGRATE_LIBCKPT": "/nonexistent/libckpt.so.1"}):
            with self.assertRaisesRegex(LibraryError, "cannot be loaded .*/nonexistent/.*set GPUMIGRATE_LIBCKPT"):
                load()

    def test_a_library_other_than_libckpt_is_refused(self):
        with unittest.mock.patch.dict(os.environ, {"GPUMIGRATE_LIBCKPT": "libc.so.6"}):
            with self.assertRaisesRegex(LibraryError, "libc.so.6 is not libckpt.so.1"):
                load()

    def test_library_is_finally_searched_by_its_name(self):
        with unittest.mock.patch.dict(os.environ, {"GPUMIGRATE_LIBCKPT": ""}), \
                unittest.mock.patch("shutil.which", return_value=None):
            self.assertEqual(candidates()[-1], "libckpt.so.1")


if __name__ == "__main__":
    unittest.main()
