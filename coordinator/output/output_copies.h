// SPDX-License-Identifier: Apache-2.0
// Copies of the ends of jobs' logs. `logs` reads them once the node that wrote a log is disconnected or
// removed. There is one file for each instance, with at least its last kKeptOutput bytes. If all files exceed
// a common limit, the copy that grew longest ago is removed. File: the 8 bytes of kMagic, the log's offset of
// the first byte (8 bytes, little-endian), the bytes. Files are not synced, so a copy may be lost with the
// machine.
// Threads: one io_context on one thread; files are read and written on a separate thread. Ownership: the
// folder. Errors: kIo; a copy that could not be written is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::coordinator {

using wire::Incarnation;
using wire::JobId;

inline constexpr std::uint64_t kKeptOutput = std::uint64_t{1} << 20;

// A range of offsets in an instance's log.
struct OutputExtent {
  OutputExtent() = default;
  OutputExtent(std::uint64_t first, std::uint64_t last) : begin(first), end(last) {}
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct OutputPart {
  std::uint64_t offset = 0;  // the offset of the first byte
  std::string bytes;
  bool begins_line = true;
};

class OutputCopies {
 public:
  // Takes the folder and a limit in bytes for all files, counted in whole disk blocks. 0 means that no copies
  // are stored.
  OutputCopies(std::string folder, std::uint64_t limit) : folder_(std::move(folder)), limit_(limit) {}

  // Loads the copies. Call this once, before all other functions. Foreign or damaged files are removed.
  Result<void> load();

  [[nodiscard]] std::optional<OutputExtent> find(JobId job, Incarnation incarnation) const;
  // Appends bytes to a copy. Bytes that the copy already has are skipped. After a gap the copy starts again
  // behind the gap.
  control::Task<Result<void>> append(JobId job, Incarnation incarnation, std::uint64_t offset,
                                     std::string bytes);
  // Returns at most `limit` bytes from `offset` on, or from the begin of the copy on. Returns kNotFound if
  // there is no copy.
  control::Task<Result<OutputPart>> read(JobId job, Incarnation incarnation, std::uint64_t offset,
                                         std::size_t limit);
  // Removes the copies of all jobs for which `stays` returns false.
  control::Task<> retain_only(std::function<bool(JobId)> stays);

  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  // Returns the size of all files in whole disk blocks.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  using Key = std::pair<JobId, Incarnation>;
  struct Copy {
    OutputExtent extent;
    std::uint64_t grown = 0;  // the count of all growths at this copy's last growth; orders the copies by
                              // that time
  };

  [[nodiscard]] std::string path_of(const Key& key) const;
  void note(const Key& key, OutputExtent extent);
  void forget(const Key& key);
  control::Task<> remove(Key key);
  control::Task<> keep_limit(Key newest);

  const std::string folder_;
  const std::uint64_t limit_;
  std::map<Key, Copy> copies_;
  std::uint64_t bytes_ = 0;
  std::uint64_t growths_ = 0;
  control::asio::thread_pool disk_{1};
};

}  // namespace ckpt::coordinator
