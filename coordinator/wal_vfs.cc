// SPDX-License-Identifier: Apache-2.0
#include "coordinator/wal_vfs.h"

#include <sqlite3.h>

#include <mutex>

namespace ckpt::coordinator {
namespace {

constexpr const char* kName = "gpumigrate-emptied-wal";

// Of logs: how SQLite's own VFS reaches them, and the same with one call of ours.
struct Methods {
  std::once_flag copied;
  const sqlite3_io_methods* real = nullptr;
  sqlite3_io_methods own{};
};
Methods& methods() {
  static Methods methods;
  return methods;
}

int write_log(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 at) {
  const sqlite3_io_methods& real = *methods().real;
  if (at == 0) {  // the header
    if (const int code = real.xTruncate(file, 0); code != SQLITE_OK) return code;
  }
  return real.xWrite(file, bytes, count, at);
}

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* opened_as) {
  auto* real = static_cast<sqlite3_vfs*>(vfs->pAppData);
  const int code = real->xOpen(real, name, file, flags, opened_as);
  if (code != SQLITE_OK || (flags & SQLITE_OPEN_WAL) == 0) return code;
  Methods& known = methods();
  std::call_once(known.copied, [&] {
    known.real = file->pMethods;
    known.own = *file->pMethods;
    known.own.xWrite = write_log;
  });
  if (file->pMethods != known.real) {  // nobody locks a log, so all of them have the same
    file->pMethods->xClose(file);
    file->pMethods = nullptr;
    return SQLITE_CANTOPEN;
  }
  file->pMethods = &known.own;
  return SQLITE_OK;
}

}  // namespace

const char* emptied_wal_vfs() {
  static const bool registered = [] {
    sqlite3_vfs* real = sqlite3_vfs_find(nullptr);
    if (real == nullptr) return false;
    static sqlite3_vfs own = *real;
    own.pNext = nullptr;
    own.zName = kName;
    own.pAppData = real;
    own.xOpen = open_file;
    return sqlite3_vfs_register(&own, 0) == SQLITE_OK;
  }();
  return registered ? kName : nullptr;
}

}  // namespace ckpt::coordinator
