// SPDX-License-Identifier: Apache-2.0
// The host state of a paused rank as bytes in a memory file: named entries after a header with a checksum.
// Entries are fixed host state, data of save callbacks, and tensors whose memory cannot be exported. The file
// travels rank -> keeper -> agent -> mover -> ... -> standby. The standby treats it as untrusted until read()
// has accepted it.
// Threads: none. Ownership: StateImage owns a private copy of the bytes. Errors: kCorrupt for bytes that do
// not match their own description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::job {

// The kind of an entry. kBarrier: for a rank of a gang, the number of the barrier at which it waits. The rank
// continues its count from there.
enum class EntryKind : std::uint32_t { kBytes = 1, kCallback = 2, kTensor = 3, kBarrier = 4 };

struct PlannedEntry {
  EntryKind kind{};
  std::string name;
  std::uint64_t bytes = 0;
  std::function<Result<void>(std::span<std::byte>)> fill;
};

struct StateFile {
  UniqueFd fd;
  std::uint64_t bytes = 0;
};

// Writes all entries into a memory file.
Result<StateFile> write_state(std::span<const PlannedEntry> entries);

struct StateEntry {
  EntryKind kind{};
  std::string name;
  std::span<const std::byte> data;
};

class StateImage {
 public:
  // Reads `bytes` bytes of `fd` from its start. A file that changes meanwhile can do no harm.
  static Result<StateImage> read(int fd, std::uint64_t bytes);

  [[nodiscard]] const std::vector<StateEntry>& entries() const { return entries_; }
  [[nodiscard]] const StateEntry* find(EntryKind kind, const std::string& name) const;

 private:
  std::vector<std::byte> bytes_;
  std::vector<StateEntry> entries_;
  std::map<std::pair<EntryKind, std::string>, std::size_t> index_;
};

}  // namespace ckpt::job
