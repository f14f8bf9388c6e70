// SPDX-License-Identifier: Apache-2.0
// The device memory of a snapshot. The class finds chunks that differ from the previous version by
// fingerprints, and copies them into host memory. Some rounds run ahead while the job runs. A staged chunk
// counts only if the scan at the barrier finds the same bytes. The copy's own fingerprint is compared, never
// a scan's, because a chunk may change between scan and copy, and change back.
//
//   CKPT_TRY(memory, SnapshotMemory::create(device, last, source, options));
//   CKPT_TRYV(memory->run_ahead(plan));            // any number of times
//   CKPT_TRYV(memory->run_final(plan));            // the job is paused; now all that differs is in dirty(),
//                                                  // or waiting
//   while (memory->waits()) ... CKPT_TRY(refs, memory->stage_waiting());   // the job stands still for what
//                                                                          // staging cannot hold
//
// Threads: one. Any thread may call cancel(), and also bytes() and check() when no other function runs.
// Ownership: Device, LastSnapshot and MemorySource outlive it. Errors: the driver's errors. kAborted after
// cancel(), and if memory of the plan was freed in the meantime (a round ahead is then repeated). kCorrupt if
// a copy differs from the scanned chunk.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "agent/mover/snapshots/last_snapshots.h"
#include "agent/mover/snapshots/staging_arena.h"
#include "libckpt/base/clock.h"
#include "libckpt/store/plan.h"

namespace ckpt::mover {

struct FoundRegion {
  CUdeviceptr address = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
};

// The job's memory as this process has mapped it.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns a lock. While the lock is held, regions from find() stay mapped. Release the lock soon, because a
  // job that frees memory waits for it.
  virtual std::unique_lock<std::mutex> hold() = 0;
  virtual std::optional<FoundRegion> find(std::uint64_t region) = 0;
};

struct SnapshotMemoryOptions {
  std::uint64_t chunk_bytes = 0;
  std::uint64_t staging_bytes = 0;
  double duty = 1.0;  // share of the GPU's time for the rounds ahead
};

class SnapshotMemory {
 public:
  struct Extent {
    MemoryPlace place;
    std::string name;
    std::uint32_t chunks = 0;
    const KnownExtent* known = nullptr;
    std::vector<track::Fingerprint> scanned;  // fingerprints that the last round's scan computed
    std::vector<track::Fingerprint> staged;   // fingerprints of the staged copies
    std::vector<std::uint32_t> slots;         // slots of the staged chunks in the arena
    bool in_plan = false;
  };
  struct Chunk {
    Extent* extent = nullptr;
    std::uint32_t index = 0;
  };

  static Result<std::unique_ptr<SnapshotMemory>> create(const Device& device, LastSnapshot& last,
                                                        MemorySource& source,
                                                        const SnapshotMemoryOptions& options);
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  // Estimates how many bytes differ from the previous version, by a scan of a few chunks in each hundred.
  // Extents that the version lacks count completely.
  Result<std::uint64_t> estimate_dirty(const image::Plan& plan);
  // Allocates `bytes` of staging memory before it is needed.
  void reserve(std::uint64_t bytes) { arena_.reserve(bytes); }
  Result<void> run_ahead(const image::Plan& plan);
  Result<void> run_final(const image::Plan& plan);
  [[nodiscard]] bool waits() const noexcept { return !waiting_.empty(); }
  // Frees the staged chunks and stages waiting chunks in their places.
  Result<std::vector<Chunk>> stage_waiting();

  // Returns the extents in the order of the last plan.
  [[nodiscard]] const std::vector<Extent*>& extents() const noexcept { return order_; }
  // Returns the staged chunks, after run_final().
  [[nodiscard]] std::vector<Chunk> staged() const;
  [[nodiscard]] std::span<const std::byte> bytes(const Chunk& chunk) const;
  [[nodiscard]] Result<void> check(const Chunk& chunk) const;

  [[nodiscard]] std::uint64_t state_bytes() const noexcept;
  // Returns the number of changed bytes that the last round found.
  [[nodiscard]] std::uint64_t dirty_bytes() const noexcept { return dirty_bytes_; }
  // Returns the bytes that were staged in the last round.
  [[nodiscard]] std::uint64_t staged_bytes() const noexcept { return staged_bytes_; }
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept;
  [[nodiscard]] Nanos scan_ns() const noexcept { return scan_ns_; }
  [[nodiscard]] Nanos copy_ns() const noexcept { return copy_ns_; }
  void cancel();

 private:
  SnapshotMemory(const Device& device, LastSnapshot& last, MemorySource& source,
                 const SnapshotMemoryOptions& options);
  Result<void> run_round(const image::Plan& plan, bool final);
  Result<void> line_up(const image::Plan& plan);
  Extent& enter(const MemoryPlace& place, const std::string& name);
  Result<void> run_piece(std::span<const Chunk> piece, bool final);
  Result<void> find_ranges(std::span<const Chunk> piece);
  // Stages chunks. Chunks that do not fit into staging are left in `chunks`.
  Result<void> stage(std::vector<Chunk>& chunks, bool final);
  Result<void> copy(std::span<const Chunk> chunks);
  [[nodiscard]] std::uint64_t bytes_of(const Chunk& chunk) const noexcept;
  [[nodiscard]] bool is_zero(const Chunk& chunk) const noexcept;
  void free_slot(Extent& extent, std::uint32_t chunk);

  const Device& device_;
  LastSnapshot& last_;
  MemorySource& source_;
  const SnapshotMemoryOptions options_;
  StagingArena arena_;
  CUstream stream_ = nullptr;
  track::Fingerprint zero_;
  std::vector<std::byte> zeroes_;
  std::map<MemoryPlace, std::unique_ptr<Extent>> all_;
  std::vector<Extent*> order_;
  std::vector<Chunk> waiting_;
  std::vector<track::ChunkRange> ranges_;
  std::vector<track::Fingerprint> fingerprints_;
  bool full_ = false;  // true if staging is full in this round
  std::uint64_t dirty_bytes_ = 0;
  std::uint64_t staged_bytes_ = 0;
  Nanos scan_ns_ = 0;
  Nanos copy_ns_ = 0;
  std::atomic<bool> cancelled_{false};
};

}  // namespace ckpt::mover
