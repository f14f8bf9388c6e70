// SPDX-License-Identifier: Apache-2.0
// Reads one version. Every content is compared with its name in the list. Each list is compared with its name
// in the version, and the version's file with its checksum. The delivered bytes are therefore the stored
// ones.
//
//   CKPT_TRY(reader, store->open_version("job", 7));
//   CKPT_TRYV(reader->read_regions(sink, {}));                     // all memory, several threads, in the
//                                                                  // order of the disk
//   CKPT_TRY(host, reader->read_blob("rank.0.host", 1 << 30));
//
// The records of a version are sorted by place and read in runs of up to 4 MiB. One thread reads, verifies
// and unpacks each run. The next runs are announced to the disk. Memory: 64 bytes for each chunk of the
// version, and 4 MiB and two chunks for each thread.
//
// Threads: any. The version stays readable while the reader exists, even if the version is removed. Errors:
// kCorrupt names the chunk that is damaged in every copy. An error of the sink ends the reading and is
// returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/job_store.h"
#include "libckpt/store/local/version.h"

namespace ckpt::checkpoint_store {

// A receiver of chunks. Many threads call it concurrently, once for each chunk, in no particular order.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  // Receives a chunk. `region` is its position in Version::regions. The bytes are valid during the call.
  virtual Result<void> chunk(std::uint32_t region, std::uint64_t chunk, std::span<const std::byte> bytes) = 0;
  virtual Result<void> zero_chunk(std::uint32_t region, std::uint64_t chunk, std::uint64_t bytes) = 0;
};

struct ReadOptions {
  unsigned threads = 0;  // the number of threads; 0: the number of processors, at most 8
};

class VersionReader {
 public:
  VersionReader(std::shared_ptr<JobStore> store, std::shared_ptr<const Version> version)
      : store_(std::move(store)), version_(std::move(version)) {}

  [[nodiscard]] const Version& version() const noexcept { return *version_; }
  // Reads a chunk. `out` must be as long as the chunk.
  Result<void> read_chunk(std::uint32_t region, std::uint64_t chunk, std::span<std::byte> out);
  Result<void> read_regions(ChunkSink& sink, const ReadOptions& options);
  // Reads a blob. Returns kNotFound if there is no blob of that name, and kRefused if it is longer than
  // `max_bytes`.
  Result<std::vector<std::byte>> read_blob(const std::string& name, std::uint64_t max_bytes);
  // Reads a blob in pieces, from the beginning to the end.
  Result<void> read_blob(const std::string& name,
                         const std::function<Result<void>(std::span<const std::byte>)>& piece);
  [[nodiscard]] const Blob* find_blob(const std::string& name) const;

 private:
  std::shared_ptr<JobStore> store_;
  std::shared_ptr<const Version> version_;
};

}  // namespace ckpt::checkpoint_store
