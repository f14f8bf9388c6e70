// SPDX-License-Identifier: Apache-2.0
// The source's half of a move (docs/design.md §5). The caller drives it from one thread:
//
//   CKPT_TRY(sender, Sender::create(device, staging, transport, options));
//   CKPT_TRYV(sender->connect());                 // returns when all lanes are open
//   CKPT_TRYV(sender->send_plan(plan));           // the target has a place for everything, or kRefused with
//                                                 // its reason
//   CKPT_TRYV(sender->add_region(region));        // each that the plan named
//   CKPT_TRY(link, sender->measure_link());
//   CKPT_TRY(clock, sender->measure_clock());
//   while (another_round_pays()) {
//     CKPT_TRY(round, sender->run_round());
//   }
//   ... the job is paused ...
//   CKPT_TRY(report, sender->run_final(host_state));    // the target holds every byte, acknowledged
//   CKPT_TRY(root, sender->root());
//   CKPT_TRY(verdict, sender->commit(manifest(root)));  // ENG-4: the target has compared the roots
//
// Codecs: the chooser gets the limit and the rate of measure_link(). Before that, kAuto sends raw or changed
// blocks. Chunks are encoded for the link and checked by the fingerprint of their plain bytes (ENG-1). A
// chunk that arrived wrong is sent raw.
//
// Threads: the calls above block and belong to one thread. Any thread may call drop_region(), cut_round(),
// cancel(), set_bandwidth() and the counters. Inside, there is one thread per lane and there are coding
// threads; the caller's thread scans. After an error every call returns the error. Ownership: Device,
// StagingPool, Transport, hooks and observer outlive the sender. Its destructor closes the lanes and releases
// all regions. Errors: kRefused (by the target), kCorrupt (a chunk arrived wrong three times, roots differ),
// kUnavailable, kProtocol, kTimedOut, kAborted (canceled), the driver's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/datapath/codec/chooser.h"
#include "libckpt/datapath/engine/shared/work_pool.h"
#include "libckpt/datapath/engine/source/lane_dispatch.h"
#include "libckpt/datapath/engine/source/round_scan.h"
#include "libckpt/datapath/engine/source/send_lane.h"
#include "libckpt/datapath/engine/source/sender_core.h"

namespace ckpt::engine {

// The default chunk size, measured on the software driver. 64 KiB costs no throughput, because messages carry
// many chunks. A job that rewrites 2 % of its 4 KiB pages at random dirties 27 % of its chunks with 64 KiB,
// 72 % with 256 KiB, 99 % with 1 MiB.
inline constexpr std::uint64_t kDefaultChunkBytes = std::uint64_t{64} << 10;

// The least number of unscanned chunks that a round sends without a scan. From this number on, a sample
// measures the time of a scan.
inline constexpr std::uint64_t kMinUnscannedChunks = 2048;

struct SenderOptions {
  SessionIdentity id;
  track::FingerprintKey key{};
  transport::SessionToken token{};
  std::vector<std::string> addresses;  // the target's addresses, one for every lane
  std::uint64_t chunk_bytes = kDefaultChunkBytes;
  std::uint64_t message_bytes = kSlotBytes;
  bool same_host = false;    // whether the target's process is on this machine and may read this process's
                             // memory
  std::uint32_t coders = 0;  // the number of threads that fingerprint and encode; 0: chosen by the number of
                             // cores
  std::uint32_t window = kDefaultWindow;  // the number of messages per lane that wait for an acknowledgement
  std::uint64_t bandwidth = 0;
  codec::CodecMode codec = codec::CodecMode::kAuto;
  std::uint64_t shadow_memory_bytes = 0;  // the bytes of memory for the versions of chunks that were sent
                                          // last; 0 disables differences
  double duty = 1.0;  // the share of the GPU's time that scans and copies may take before the final round
  std::uint64_t scan_piece_bytes = std::uint64_t{1} << 30;  // the maximum number of bytes of a scan for which
                                                            // a drop waits
  std::uint64_t scan_slice_bytes = std::uint64_t{256} << 20;
  // New regions with this many chunks together are sent without a scan, which would only find that the target
  // has nothing of them. This does not apply to a duty below 1, where scans pace the copies.
  std::uint64_t min_unscanned_chunks = kMinUnscannedChunks;
  Nanos answer_timeout = 30'000'000'000;  // the time within which the target must connect, check the plan,
                                          // and verify
  FaultHooks* hooks = nullptr;
  SenderObserver* observer = nullptr;
};

// The time for which a scan of the target's memory counts as the scan of the handover.
inline constexpr Nanos kVerifyHolds = 2'000'000'000;

struct RoundReport {
  std::uint32_t round = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;  // the dirty bytes found by this round's scan
  std::uint64_t sent_bytes = 0;
  std::uint64_t wire_bytes = 0;
  Nanos begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos scan_ns = 0;        // the scan's own time, without the time for which the lanes delayed it
  Nanos end_ns = 0;         // the time of the last acknowledgement
  Nanos first_copy_ns = 0;  // the time of the first copy; 0 if nothing was dirty
  // The rate of wire bytes while only sending (the scan is done, or delayed by full lanes); 0 if there were
  // too few bytes for a rate.
  double drain_bytes_per_second = 0;
  double plain_bytes_per_second = 0;  // the rate before encoding while only sending, on which estimates are
                                      // based
  // After the first round: the bytes that have become dirty again, estimated by a sample (too high rather
  // than too low). Without a value, the state is too small for a sample.
  std::optional<std::uint64_t> sampled_dirty_bytes;
  bool cut = false;  // the round was cut short by cut_round(), so a part of the dirty chunks was not sent
};

struct RoundProgress {  // the progress of the running round, which any thread may read at any time
  std::uint32_t round = 0;
  std::uint64_t found_bytes = 0;  // the dirty bytes found in this round so far
  std::uint64_t acked_bytes = 0;  // the acknowledged bytes of this round
  std::uint64_t sent_bytes = 0;   // the sent bytes of all rounds
  std::uint64_t wire_bytes = 0;
  std::uint64_t resent_chunks = 0;
  std::uint64_t host_state_bytes = 0;  // the bytes of the growing host state that were passed to the lane
};

struct Verdict {
  Nanos sent_ns = 0;      // the time at which the manifest's last byte was passed to the lane
  Nanos heard_ns = 0;     // the time at which the answer arrived
  Nanos compared_ns = 0;  // the time at which the roots were compared, by the target's clock
};

class Sender {
 public:
  static Result<std::unique_ptr<Sender>> create(const Device& device, StagingPool& staging,
                                                transport::Transport& transport,
                                                const SenderOptions& options);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  Result<void> connect();
  // Returns, after connect(), the number of lanes whose payloads the target reads from this process's memory
  // by this access or a better one.
  [[nodiscard]] std::size_t same_host_lanes(transport::PayloadAccess least) const;
  // Sends the plan. If regions were added since, call it again with these regions before their add_region().
  Result<void> send_plan(std::span<const std::byte> plan);
  Result<void> add_region(TransferRegion region);
  // Abandons a region of a plan that will never be added, because it was freed meanwhile.
  void forgo_region(std::uint64_t id, std::uint64_t generation);
  // Drops a region. Returns once nothing here uses the region and its backing is released (ENG-7). Unknown
  // ids are ignored.
  void drop_region(std::uint64_t id);

  // Measures a plain stream over the same lanes, in bytes per second. Returns the limit itself while one is
  // set. Do not call it during a round.
  Result<std::uint64_t> measure_link();
  Result<ClockOffset> measure_clock();

  Result<RoundReport> run_round();
  // Ends the running round (and every later run_round()) as soon as the messages in flight have arrived,
  // since the final round comes next.
  void cut_round();
  // Begins the verification of ENG-4 before the pause (docs/adr/0005): the target scans all its content now,
  // and chunks of later rounds as they arrive. Call it between rounds. wait_verified() must have returned
  // before the next round but one, and before the next begin_verify(). The final round begins with a scan of
  // the target unless a scan took place within the last kVerifyHolds. If host state was announced, the target
  // answers once it has memory for the host state, or after some seconds.
  void begin_verify();
  // Waits for the verification. Returns false if cut_round() ended the wait.
  Result<bool> wait_verified();
  // Runs the final round. After an error `host_state` may still be read until this sender is destroyed.
  Result<RoundReport> run_final(std::span<const std::byte> host_state);
  // Runs the final round with host state that is still being made. `memory` (at a fixed place, with the same
  // lifetime as in run_final()) fills from its front as host_state_grew() reports. Returns when all of it has
  // been sent.
  Result<RoundReport> run_final_while_it_grows(std::span<const std::byte> memory);
  // Begins to send host state, once, after announce_host_state(). The available part is sent alongside the
  // rounds, on the first lane. Without this call, sending begins with the final round.
  void begin_host_state(std::span<const std::byte> memory);
  // Reports, before or during the calls above, how much host state is available. With `is_whole` it is
  // complete, and longer than at the previous call. Any thread.
  void host_state_grew(std::uint64_t filled, bool is_whole);
  // Announces host state, once, at any time before the final round, so that the target reserves memory for
  // it.
  void announce_host_state(std::uint64_t max_bytes, std::uint64_t expected);
  Result<track::Fingerprint> root() const { return core_->root(); }
  // Sends the manifest and waits for the answer. `on_left` is called when the manifest has been sent and the
  // answer has not arrived.
  Result<Verdict> commit(std::span<const std::byte> manifest, const std::function<void()>& on_left = {});

  void set_bandwidth(std::uint64_t bytes_per_second);
  void cancel(const Error& reason);
  [[nodiscard]] RoundProgress progress() const;
  [[nodiscard]] std::uint64_t state_bytes() const { return core_->state_bytes(); }
  [[nodiscard]] std::uint64_t outstanding_chunks() const { return core_->outstanding(); }

 private:
  // Host state that is being made. `memory` is empty until the host state is sent.
  struct GrowingState {
    std::mutex mutex;  // guards all members
    std::span<const std::byte> memory;
    std::uint64_t filled = 0;
    bool is_whole = false;
  };

  explicit Sender(SenderOptions options) : options_(std::move(options)) {}
  Result<void> make_lanes(StagingPool& staging, transport::Transport& transport);
  Result<RoundReport> scan_and_send(bool is_final);
  Result<RoundReport> final_round(bool with_host_state, const std::function<void()>& send_host_state);
  Result<void> resend_stale();
  void set_link_rate();

  SenderOptions options_;
  GrowingState growing_;
  std::unique_ptr<SenderCore> core_;
  std::unique_ptr<WorkPool> workers_;
  std::vector<std::unique_ptr<SendLane>> lanes_;
  std::optional<LaneDispatch> dispatch_;
  std::unique_ptr<RoundScan> scan_;
  std::atomic<std::uint64_t> acked_before_{0};
  Nanos verify_begun_ns_ = 0;  // the time at which the verification began; 0 if none has begun
  std::atomic<std::uint64_t> measured_link_{0};
};

}  // namespace ckpt::engine
