// SPDX-License-Identifier: Apache-2.0
// Restores a backup into a coordinator's folder in which no coordinator runs. Everything is checked and
// written under other names before a file of the folder is changed. Existing files are moved to a separate
// folder. The journal is renamed to its final name first: a store is never next to an older journal.
// Threads: one. Errors: kRefused while a coordinator holds the folder, or if it has a store and `replace` is
// false; nothing is changed then. Those of BackupFile. kIo in the middle: run it again with `replace`.
#pragma once

#include <string>

#include "libckpt/store/backup/backup_file.h"

namespace ckpt::backup {

struct Restored {
  std::string aside;  // the folder of the former files; empty if there were none
};

// Restores the backup. `aside` is the name of the folder for former files, inside `folder`.
Result<Restored> restore(const BackupFile& file, const std::string& folder, bool replace,
                         const std::string& aside);

}  // namespace ckpt::backup
