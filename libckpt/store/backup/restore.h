// SPDX-License-Identifier: Apache-2.0
// Puts a backup back into a coordinator's folder in which no coordinator runs. Everything is checked and
// written beside before a file of the folder is touched; what was there goes to a folder of its own. The
// journal's name comes first: a store is never beside a journal that is older.
// Threads: one. Errors: kRefused while a coordinator holds the folder, or where it has a store and `replace`
// is false; nothing was touched then. Those of BackupFile. kIo in the middle: run it again with `replace`.
#pragma once

#include <string>

#include "libckpt/store/backup/backup_file.h"

namespace ckpt::backup {

struct Restored {
  std::string aside;  // where the files are that were there; empty: there were none
};

// `aside`: the name of that folder, in `folder`.
Result<Restored> restore(const BackupFile& file, const std::string& folder, bool replace,
                         const std::string& aside);

}  // namespace ckpt::backup
