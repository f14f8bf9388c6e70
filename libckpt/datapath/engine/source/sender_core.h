// SPDX-License-Identifier: Apache-2.0
// The state that the sender's threads share: regions, the sent map, outstanding chunks, counters, and the
// first error. Internal to the engine; sender.h is the public interface.
//
// Threads: any, unless stated otherwise. Locks are taken once per message (up to 32 chunks) or slice, never
// per chunk. Ownership: SourceRegions exist as long as the core. Only their backing is released when they are
// dropped.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"
#include "libckpt/datapath/engine/shared/fault_hooks.h"
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/engine/shared/region.h"
#include "libckpt/datapath/engine/source/history.h"
#include "libckpt/datapath/engine/source/policy/rate_limiter.h"
#include "libckpt/datapath/track/scanner.h"
#include "libckpt/datapath/track/sent_map.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::engine {

class SourceCodec;

// A region at the source. A thread that reads the region's memory is a user of it, and a drop waits until
// there are no users.
class SourceRegion {
 public:
  SourceRegion(TransferRegion region, std::uint64_t chunk_bytes, ChunkHistory history)
      : region_(std::move(region)),
        chunks_(chunk_count(region_.bytes, chunk_bytes)),
        history_(std::move(history)) {}

  [[nodiscard]] const TransferRegion& get() const noexcept { return region_; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] bool dropped() const noexcept { return dropped_.load(); }
  // Returns whether no round has scanned the region yet, so that the target has nothing of it. For the
  // sender's caller only.
  [[nodiscard]] bool unseen() const noexcept { return unseen_; }
  void seen() noexcept { unseen_ = false; }
  // Returns the history of the region's chunks. Each chunk belongs to the thread that handles it (history.h).
  [[nodiscard]] ChunkHistory& history() noexcept { return history_; }
  // Enters the region. Returns false once the region is dropped: do not use its memory then.
  [[nodiscard]] bool enter() noexcept;
  void leave() noexcept;
  // Begins a drop. From now on enter() fails.
  void begin_drop() noexcept { dropped_.store(true); }
  // Waits until the last user has left, and then releases the memory.
  void finish_drop();

 private:
  TransferRegion region_;
  std::uint32_t chunks_;
  ChunkHistory history_;
  std::atomic<std::uint32_t> users_{0};
  std::atomic<bool> dropped_{false};
  bool unseen_ = true;
};

// A chunk that the target does not have, on its way from the scan to a lane.
struct DirtyChunk {
  SourceRegion* region = nullptr;
  std::uint32_t chunk = 0;
  bool zero = false;  // whether the chunk had only zeros when scanned or staged, so that it is sent as an
                      // order without a payload
  bool raw = false;   // whether the chunk arrived wrong and is sent without an encoding this time
  track::Fingerprint scanned;  // the fingerprint from the scan; unset if the chunk was not scanned, since the
                               // target has nothing of the region
};

struct ClockOffset {
  Nanos offset = 0;       // the target's clock minus the source's clock
  Nanos uncertainty = 0;  // half the fastest round-trip time
};

// A mismatch that was found and repaired by sending the chunk again.
struct MismatchEvent {
  ChunkId chunk;
  std::uint32_t times = 0;
};

class SenderObserver {
 public:
  virtual ~SenderObserver() = default;
  virtual void on_mismatch(const MismatchEvent&) {}  // called on a lane's thread, or on the thread in
                                                     // run_final()
  virtual void on_failed(const Error&) {}            // called once, on any thread
};

struct SenderCounters {
  std::atomic<std::uint64_t> sent_bytes{0};   // the chunks' bytes before encoding
  std::atomic<std::uint64_t> wire_bytes{0};   // the bytes after encoding, including headers
  std::atomic<std::uint64_t> acked_bytes{0};  // the acknowledged part of sent_bytes
  std::atomic<std::uint64_t> drained_wire_bytes{0};
  std::atomic<std::uint64_t> resent_chunks{0};
};

class SenderCore {
 public:
  SenderCore(const Device& device, const SessionIdentity& id, std::uint64_t chunk_bytes,
             std::uint64_t message_bytes, std::shared_ptr<const track::TrackKernels> kernels,
             track::SentMap map, FaultHooks* hooks, SenderObserver* observer);
  ~SenderCore();

  const Device& device;
  const SessionIdentity id;
  const std::uint64_t chunk_bytes;
  const std::uint64_t message_bytes;  // the maximum payload of one kChunks message
  const std::shared_ptr<const track::TrackKernels> kernels;
  FaultHooks* const hooks;
  const track::Fingerprint zero_chunk;
  bool same_host = false;              // the value of SenderOptions::same_host, set before the lanes exist
  std::unique_ptr<SourceCodec> codec;  // the codec, set before the first region; if empty, everything is sent
                                       // raw
  RateLimiter limiter;
  SenderCounters counters;
  std::atomic<std::uint32_t> round{0};
  std::atomic<std::uint64_t> calibrated_bytes{0};  // the bytes of measure_link() that were acknowledged
  std::atomic<bool> cut{false};  // whether this round is cut short: queued chunks are then dropped, and
                                 // chunks in flight arrive

  // ---- regions and the sent map
  Result<SourceRegion*> add_region(TransferRegion region);
  SourceRegion* find_region(std::uint64_t id) const;  // returns nullptr for an unknown or dropped region
  void erase_region(const SourceRegion& region);
  std::vector<SourceRegion*> live_regions() const;
  [[nodiscard]] std::uint64_t state_bytes() const;
  Result<void> diff(const SourceRegion& region, std::span<const track::Fingerprint> scanned,
                    std::uint32_t first, std::vector<std::uint32_t>& dirty) const;
  Result<track::Fingerprint> root() const;
  void refresh_root() const;  // runs between rounds, to shorten the work at the handover
  // Forgets the target's content of these chunks, because a message with them is about to be sent. The
  // content is unknown until the answer arrives.
  void forget(std::span<const DirtyChunk> chunks);
  // Stores the target's fingerprint. Does nothing for a region that was dropped meanwhile.
  void acknowledge(const DirtyChunk& chunk, const track::Fingerprint& from_target);
  class MapLock {
   public:
    explicit MapLock(SenderCore& core) : lock_(core.map_mutex_) {}

   private:
    std::lock_guard<std::mutex> lock_;
  };

  // Counts and reports a mismatch of this chunk. Fails the session at the third mismatch.
  void mismatch(const ChunkId& chunk);

  // ---- outstanding chunks
  void begin(std::uint64_t chunks) noexcept { outstanding_.fetch_add(chunks); }
  void finish(std::uint64_t chunks);
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return outstanding_.load(); }

  // ---- events: state changes for which a blocked caller waits
  void lane_opened(transport::PayloadAccess payload_access);
  void answer(LaneMessage kind, const VerdictRecord& record, std::string text);
  void scan_done();
  // Notes a stale chunk. Returns kProtocol if there is no such chunk. Chunks of dropped regions are skipped.
  Result<void> stale(const AckRecord& record);
  std::set<ChunkId> take_stale();
  // Returns the number of open lanes with at least this access.
  [[nodiscard]] std::size_t same_host_lanes(transport::PayloadAccess least) const;
  void blob_sent();
  void host_state_sent();
  void clock_measured(const ClockOffset& offset);
  void calibrated();
  void notify();  // signals the change of a value that an until() condition reads
  void fail(const Error& error);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(); }
  [[nodiscard]] std::optional<Error> error() const;

  struct Events {
    std::uint32_t open_lanes = 0;
    std::array<std::uint32_t, 3> by_nearness{};  // the number of open lanes with each payload access
    bool scan_done = false;
    bool blob_sent = false;        // whether a plan or manifest was sent
    bool host_state_sent = false;  // whether all of the host state was sent
    std::uint32_t calibrated = 0;
    std::optional<ClockOffset> clock;
    std::optional<std::pair<VerdictRecord, std::string>> plan_answer;
    std::optional<std::pair<VerdictRecord, std::string>> verdict;
  };
  template <class Change>
  void update(Change change) {
    const std::lock_guard lock(event_mutex_);
    change(events_);
  }
  [[nodiscard]] Events events() const {
    const std::lock_guard lock(event_mutex_);
    return events_;
  }
  // Blocks until `condition(events)` is true, an error occurs, or the deadline passes (kTimedOut with `what`;
  // 0 means no deadline).
  template <class Condition>
  Result<void> until(Condition condition, Nanos timeout, const char* what);

 private:
  SenderObserver* observer_;
  mutable std::mutex map_mutex_;  // guards map_
  track::SentMap map_;
  mutable std::mutex region_mutex_;  // guards regions_
  std::vector<std::unique_ptr<SourceRegion>> regions_;
  std::atomic<std::uint64_t> outstanding_{0};
  std::atomic<bool> failed_{false};

  mutable std::mutex event_mutex_;  // guards all members below
  std::condition_variable event_;
  Events events_;
  std::optional<Error> error_;
  std::set<ChunkId> stale_;  // the stale chunks, with at most one entry for every chunk
  std::map<ChunkId, std::uint32_t> mismatches_;
};

template <class Condition>
Result<void> SenderCore::until(Condition condition, Nanos timeout, const char* what) {
  std::unique_lock lock(event_mutex_);
  const auto done = [&] { return error_.has_value() || condition(events_); };
  if (timeout == 0)
    event_.wait(lock, done);
  else if (!event_.wait_for(lock, std::chrono::nanoseconds(timeout), done))
    return Error(ErrorCode::kTimedOut, std::string(what) + " failed: the target's mover did not answer");
  if (error_) return *error_;
  return ok();
}

}  // namespace ckpt::engine
