// SPDX-License-Identifier: Apache-2.0
// The state that the sender's threads share: regions, the sent map, outstanding chunks, counters, and the
// first error. Internal to the engine; the public face is sender.h.
//
// Threads: any, unless stated otherwise. Locks are taken once per message (up to 32 chunks) or slice, never
// per chunk.
// Ownership: SourceRegions live as long as the core; only their backing is released when they are dropped.
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

// A region at the source. A thread that reads its memory is a user meanwhile; a drop waits until there is
// none.
class SourceRegion {
 public:
  SourceRegion(TransferRegion region, std::uint64_t chunk_bytes, ChunkHistory history)
      : region_(std::move(region)),
        chunks_(chunk_count(region_.bytes, chunk_bytes)),
        history_(std::move(history)) {}

  [[nodiscard]] const TransferRegion& get() const noexcept { return region_; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] bool dropped() const noexcept { return dropped_.load(); }
  // Whether no round has looked at it yet: the target holds nothing of it. Of the sender's caller only.
  [[nodiscard]] bool unseen() const noexcept { return unseen_; }
  void seen() noexcept { unseen_ = false; }
  // The history of its chunks; each chunk is for the thread that has it under way (history.h).
  [[nodiscard]] ChunkHistory& history() noexcept { return history_; }
  // False once it is dropped: do not touch its memory.
  [[nodiscard]] bool enter() noexcept;
  void leave() noexcept;
  // From here on enter() fails.
  void begin_drop() noexcept { dropped_.store(true); }
  // Returns when the last user has left, and releases the memory.
  void finish_drop();

 private:
  TransferRegion region_;
  std::uint32_t chunks_;
  ChunkHistory history_;
  std::atomic<std::uint32_t> users_{0};
  std::atomic<bool> dropped_{false};
  bool unseen_ = true;
};

// One chunk that the target does not hold, on its way from the scan to a lane.
struct DirtyChunk {
  SourceRegion* region = nullptr;
  std::uint32_t chunk = 0;
  bool zero = false;           // as scanned or staged: sent as an order, without a payload
  bool raw = false;            // it arrived wrong: without an encoding this time
  track::Fingerprint scanned;  // none: not scanned, since the target holds nothing of the region
};

struct ClockOffset {
  Nanos offset = 0;       // target's clock minus ours
  Nanos uncertainty = 0;  // half the fastest round trip
};

// A mismatch that was found and repaired by sending again.
struct MismatchEvent {
  ChunkId chunk;
  std::uint32_t times = 0;
};

class SenderObserver {
 public:
  virtual ~SenderObserver() = default;
  virtual void on_mismatch(const MismatchEvent&) {}  // a lane's thread, or the one in run_final()
  virtual void on_failed(const Error&) {}            // once, any thread
};

struct SenderCounters {
  std::atomic<std::uint64_t> sent_bytes{0};   // chunks before encoding
  std::atomic<std::uint64_t> wire_bytes{0};   // after encoding, headers included
  std::atomic<std::uint64_t> acked_bytes{0};  // of sent_bytes
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
  const std::uint64_t message_bytes;  // payload of one kChunks
  const std::shared_ptr<const track::TrackKernels> kernels;
  FaultHooks* const hooks;
  const track::Fingerprint zero_chunk;
  bool near = false;                   // set before the lanes: SenderOptions::near
  std::unique_ptr<SourceCodec> codec;  // set before the first region; none: everything raw
  RateLimiter limiter;
  SenderCounters counters;
  std::atomic<std::uint32_t> round{0};
  std::atomic<std::uint64_t> calibrated_bytes{0};  // acknowledged, of measure_link()
  std::atomic<bool> cut{false};  // this round ends early: queued chunks are dropped, those in flight arrive

  // ---- regions and the sent map
  Result<SourceRegion*> add_region(TransferRegion region);
  SourceRegion* find_region(std::uint64_t id) const;  // nullptr: none, or dropped
  void forget_region(const SourceRegion& region);
  std::vector<SourceRegion*> live_regions() const;
  [[nodiscard]] std::uint64_t state_bytes() const;
  Result<void> diff(const SourceRegion& region, std::span<const track::Fingerprint> scanned,
                    std::uint32_t first, std::vector<std::uint32_t>& dirty) const;
  Result<track::Fingerprint> root() const;
  void refresh_root() const;  // between rounds: so much less at the switch
  // A message with these chunks is about to leave: the target's content of them is unknown until its answer.
  void forget(std::span<const DirtyChunk> chunks);
  // Enters the target's fingerprints; nothing for regions dropped meanwhile.
  void acknowledge(const DirtyChunk& chunk, const track::Fingerprint& from_target);
  class MapLock {
   public:
    explicit MapLock(SenderCore& core) : lock_(core.map_mutex_) {}

   private:
    std::lock_guard<std::mutex> lock_;
  };

  // Counts a mismatch of this chunk and reports it; fails the session at the third.
  void mismatch(const ChunkId& chunk);

  // ---- outstanding chunks
  void begin(std::uint64_t chunks) noexcept { outstanding_.fetch_add(chunks); }
  void finish(std::uint64_t chunks);
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return outstanding_.load(); }

  // ---- events: state changes that a blocked caller waits for
  void lane_opened(transport::PayloadAccess payload_access);
  void answer(LaneMessage kind, const VerdictRecord& record, std::string text);
  void scan_done();
  // kProtocol: there is no such chunk. Those of regions that have gone are passed over.
  Result<void> stale(const AckRecord& record);
  std::set<ChunkId> take_stale();
  // Open ones that are as near as that.
  [[nodiscard]] std::size_t same_host_lanes(transport::PayloadAccess least) const;
  void blob_sent();
  void host_state_sent();
  void clock_measured(const ClockOffset& offset);
  void calibrated();
  void notify();  // something that an until() condition reads has changed
  void fail(const Error& error);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(); }
  [[nodiscard]] std::optional<Error> error() const;

  struct Events {
    std::uint32_t open_lanes = 0;
    std::array<std::uint32_t, 3> by_nearness{};  // of those
    bool scan_done = false;
    bool blob_sent = false;        // a plan or manifest
    bool host_state_sent = false;  // all of it
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
  // Blocks until `condition(events)`, or an error, or the deadline (kTimedOut with `what`; 0 = none).
  template <class Condition>
  Result<void> until(Condition condition, Nanos timeout, const char* what);

 private:
  SenderObserver* observer_;
  mutable std::mutex map_mutex_;  // map_
  track::SentMap map_;
  mutable std::mutex region_mutex_;  // regions_
  std::vector<std::unique_ptr<SourceRegion>> regions_;
  std::atomic<std::uint64_t> outstanding_{0};
  std::atomic<bool> failed_{false};

  mutable std::mutex event_mutex_;  // everything below
  std::condition_variable event_;
  Events events_;
  std::optional<Error> error_;
  std::set<ChunkId> stale_;  // no more than there are chunks
  std::map<ChunkId, std::uint32_t> mismatches_;
};

template <class Condition>
Result<void> SenderCore::until(Condition condition, Nanos timeout, const char* what) {
  std::unique_lock lock(event_mutex_);
  const auto done = [&] { return error_.has_value() || condition(events_); };
  if (timeout == 0)
    event_.wait(lock, done);
  else if (!event_.wait_for(lock, std::chrono::nanoseconds(timeout), done))
    return Error(ErrorCode::kTimedOut, std::string(what) + ": no answer from the target's mover");
  if (error_) return *error_;
  return ok();
}

}  // namespace ckpt::engine
