// SPDX-License-Identifier: Apache-2.0
// One entry of a write journal: this header, the path, the other path, the bytes.
#pragma once

#include <cstdint>

namespace ckpt::test {

enum class JournalKind : std::uint32_t {
  kCreate = 1,
  kWrite,
  kSync,
  kSyncFolder,
  kRename,
  kRemove,
  kMakeFolder,
  kRemoveFolder,
};

struct JournalHead {
  JournalKind kind = JournalKind::kWrite;
  std::uint32_t path_bytes = 0;
  std::uint32_t other_bytes = 0;
  std::uint32_t zero = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

}  // namespace ckpt::test
