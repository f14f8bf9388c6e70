// SPDX-License-Identifier: Apache-2.0
// SQLite's access to files, but for this: a write-ahead log that begins anew is emptied first.
//
// SQLite begins its log anew by overwriting it, the header first. Power that fails then may leave the old header before some new frames. The old frames
// that are still whole would be taken for the log's, and put older pages over newer ones. So SQLite syncs the new header before it goes on,
// in whoever writes. Here no sync is needed: a log that is empty has no old frames. A file system that journals its metadata (ext4, XFS, Btrfs)
// keeps the order of emptying a file and writing to it.
// Threads: any. Nothing here fails but the opening of a log.
#pragma once

namespace ckpt::coordinator {

// Its name, for sqlite3_open_v2(); null if SQLite has no default one to stand on.
const char* emptied_wal_vfs();

}  // namespace ckpt::coordinator
