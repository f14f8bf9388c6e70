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
// Codecs: the chooser gets the limit and the rate of measure_link(); until then kAuto sends raw or changed
// blocks. Chunks are encoded for the link, judged by the fingerprint of their plain bytes (ENG-1), and sent
// raw after they arrived wrong.
//
// Threads: the calls above block and belong to one thread; drop_region(), cut_round(), cancel(),
// set_bandwidth() and the counters are for any thread. Inside: one thread per lane, coding threads, and the
// caller's thread scans. After an error every call returns it.
// Ownership: Device, StagingPool, Transport, hooks and observer outlive the sender. Its end closes the lanes
// and releases all regions. Errors: kRefused (by the target), kCorrupt (a chunk arrived wrong three times,
// roots differ), kUnavailable, kProtocol, kTimedOut, kAborted (cancelled), the driver's.
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

// Measured on the software driver: 64 KiB costs no throughput (messages carry many chunks) and a job that
// rewrites 2 % of its 4 KiB pages at random dirties 27 % of its chunks with 64 KiB, 72 % with 256 KiB, 99 %
// with 1 MiB.
inline constexpr std::uint64_t kDefaultChunkBytes = std::uint64_t{64} << 10;

// From so many chunks on a sample measures the time of a scan.
inline constexpr std::uint64_t kMinUnscannedChunks = 2048;

struct SenderOptions {
  SessionIdentity id;
  track::FingerprintKey key{};
  transport::SessionToken token{};
  std::vector<std::string> addresses;  // one lane each
  std::uint64_t chunk_bytes = kDefaultChunkBytes;
  std::uint64_t message_bytes = kSlotBytes;
  bool near = false;         // the target's process is on this machine: it may read this one's memory
  std::uint32_t coders = 0;  // threads that fingerprint and encode; 0 = chosen by the cores
  std::uint32_t window = kDefaultWindow;  // messages per lane that wait for an acknowledgement
  std::uint64_t bandwidth = 0;
  codec::CodecMode codec = codec::CodecMode::kAuto;
  std::uint64_t shadow_memory_bytes = 0;  // for the last sent versions of chunks; 0 = no differences
  double duty = 1.0;  // share of the GPU's time that scans and copies may take before the final round
  std::uint64_t scan_piece_bytes = std::uint64_t{1} << 30;  // a drop waits for at most that much of a scan
  std::uint64_t scan_slice_bytes = std::uint64_t{256} << 20;
  // New regions of so many chunks together are sent without a scan: it would only find that the target holds
  // nothing of them. Not with a duty below 1, where scans pace the copies.
  std::uint64_t min_unscanned_chunks = kMinUnscannedChunks;
  Nanos answer_timeout = 30'000'000'000;  // for the target to connect, to judge the plan, to verify
  FaultHooks* hooks = nullptr;
  SenderObserver* observer = nullptr;
};

// How long a scan of the target's memory counts as the scan of the handover.
inline constexpr Nanos kVerifyHolds = 2'000'000'000;

struct RoundReport {
  std::uint32_t round = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;  // found by this round's scan
  std::uint64_t sent_bytes = 0;
  std::uint64_t wire_bytes = 0;
  Nanos begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos scan_ns = 0;        // the scan's own time, without that in which the lanes held it up
  Nanos end_ns = 0;         // the last acknowledgement
  Nanos first_copy_ns = 0;  // 0: nothing was dirty
  // Wire bytes while only sending (the scan done, or held up by full lanes); 0 = too few for a rate.
  double drain_bytes_per_second = 0;
  double plain_bytes_per_second = 0;  // the same before encoding: the rate that estimates are made of
  // After the first round: bytes that have become dirty again, by a sample (rather too much); none: the state
  // is too small for one.
  std::optional<std::uint64_t> sampled_dirty_bytes;
  bool cut = false;  // cut_round(): a part of the dirty chunks is left
};

struct RoundProgress {  // any thread, any time
  std::uint32_t round = 0;
  std::uint64_t found_bytes = 0;  // dirty, of this round so far
  std::uint64_t acked_bytes = 0;  // of this round
  std::uint64_t sent_bytes = 0;   // all rounds
  std::uint64_t wire_bytes = 0;
  std::uint64_t resent_chunks = 0;
  std::uint64_t host_state_bytes = 0;  // of the host state that grows, given to the lane
};

struct Verdict {
  Nanos sent_ns = 0;      // the manifest's last byte was given to the lane
  Nanos heard_ns = 0;     // the answer came
  Nanos compared_ns = 0;  // by the target's clock
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
  // After connect(): of the lanes, those whose payloads the target takes out of this process's memory by this
  // access, or a better one.
  [[nodiscard]] std::size_t same_host_lanes(transport::PayloadAccess least) const;
  // Again with the regions added since, before their add_region().
  Result<void> send_plan(std::span<const std::byte> plan);
  Result<void> add_region(TransferRegion region);
  // A region of a plan that will never be added: it was freed meanwhile.
  void forgo_region(std::uint64_t id, std::uint64_t generation);
  // Returns once nothing here touches the region and its backing is released (ENG-7). Unknown ids are fine.
  void drop_region(std::uint64_t id);

  // A plain stream over the same lanes, bytes per second; the limit itself while one is set. Not during a
  // round.
  Result<std::uint64_t> measure_link();
  Result<ClockOffset> measure_clock();

  Result<RoundReport> run_round();
  // The running round (and every later run_round()) ends as soon as the messages in flight have arrived: the
  // final one comes.
  void cut_round();
  // ENG-4, ahead of the pause (docs/adr/0005): the target scans all it holds now, and chunks of later rounds
  // as they arrive. Between rounds; wait_verified() must have returned before the next round but one, and
  // before the next begin_verify(). The final round begins with a scan of the target unless there was one
  // within kVerifyHolds. Where host state was announced, the target answers once it has memory for it, or
  // after some seconds.
  void begin_verify();
  // False: it was cut_round() that ended it.
  Result<bool> wait_verified();
  // After an error `host_state` may still be read, until this sender has gone.
  Result<RoundReport> run_final(std::span<const std::byte> host_state);
  // The same with host state that is still being made: `memory` (at a fixed place, as long) fills from its
  // front as host_state_grew() reports. Returns when all of it has been sent.
  Result<RoundReport> run_final_while_it_grows(std::span<const std::byte> memory);
  // Once, after announce_host_state(): what is there of it leaves beside the rounds, on the first lane. Without
  // it that begins with the final round.
  void begin_host_state(std::span<const std::byte> memory);
  // Before or in the calls above: so much is there. `is_whole`: that is all, and more than at the call before.
  // Any thread.
  void host_state_grew(std::uint64_t filled, bool is_whole);
  // Once, any time before the final round: host state will come, so the target has memory ready for it.
  void announce_host_state(std::uint64_t most, std::uint64_t expected);
  Result<track::Fingerprint> root() const { return core_->root(); }
  // `on_left` is called when the manifest has left and the answer has not come.
  Result<Verdict> commit(std::span<const std::byte> manifest, const std::function<void()>& on_left = {});

  void set_bandwidth(std::uint64_t bytes_per_second);
  void cancel(const Error& reason);
  [[nodiscard]] RoundProgress progress() const;
  [[nodiscard]] std::uint64_t state_bytes() const { return core_->state_bytes(); }
  [[nodiscard]] std::uint64_t outstanding_chunks() const { return core_->outstanding(); }

 private:
  // Host state that is being made: `memory` is empty until it is sent.
  struct GrowingState {
    std::mutex mutex;  // all of it
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
  Nanos verify_begun_ns_ = 0;  // 0: not yet
  std::atomic<std::uint64_t> measured_link_{0};
};

}  // namespace ckpt::engine
