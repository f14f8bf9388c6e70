// SPDX-License-Identifier: Apache-2.0
// The target's half of a move (docs/design.md §5). It listens with one thread per lane, writes the chunks
// that arrive, and answers with fingerprints of its own device memory. At the final round a separate thread
// scans all of the target's content (ENG-4).
//
//   CKPT_TRY(receiver, Receiver::create(device, staging, transport, delegate, options));
//   const auto addresses = receiver->addresses();  // the source's; everything else is a call of the delegate
//
// Threads: any thread may call addresses() and cancel(). Ownership: Device, StagingPool, Transport, delegate
// and hooks outlive the receiver; its destructor closes the lanes and releases the regions. Errors: create():
// the driver's, no staging memory, no listener. Later errors go to the delegate.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/datapath/engine/shared/work_pool.h"
#include "libckpt/datapath/engine/target/receive_lane.h"
#include "libckpt/datapath/engine/target/receiver_core.h"

namespace ckpt::engine {

// The default is two lanes, or four with at least four cores. A lane often waits for its peer to wake up, and
// another lane then uses the core. On two cores, more lanes only preempt each other.
inline constexpr std::uint32_t kMinLanes = 2;
[[nodiscard]] std::uint32_t default_lanes() noexcept;

struct ReceiverOptions {
  SessionIdentity id;
  track::FingerprintKey key{};
  transport::SessionToken token{};
  std::uint32_t lanes = 0;  // the number of lanes; 0: default_lanes(), or fewer if the staging memory is too
                            // small for them
  std::uint32_t paths = 1;  // the number of paths that lanes use in turn; each path then has equally many
                            // lanes, if memory allows that
  std::uint32_t window = kDefaultWindow;  // the number of messages in flight per lane, at least the sender's
                                          // window
  std::uint32_t coders = 0;  // the number of threads that wait for the device and decode; 0: chosen by the
                             // number of cores
  std::uint64_t scan_slice_bytes = std::uint64_t{256} << 20;
  std::uint64_t max_plan_bytes = std::uint64_t{64} << 20;
  std::uint64_t max_host_bytes = kMaxHostState;
  FaultHooks* hooks = nullptr;
};

class Receiver {
 public:
  static Result<std::unique_ptr<Receiver>> create(const Device& device, StagingPool& staging,
                                                  transport::Transport& transport, ReceiverDelegate& delegate,
                                                  const ReceiverOptions& options);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  [[nodiscard]] std::vector<std::string> addresses() const;
  void cancel(const Error& reason);

 private:
  Receiver() = default;
  Result<void> begin_scan(std::uint32_t round);
  Result<void> scan(std::uint32_t round);
  void post_stale(std::uint32_t round, std::span<const AckRecord> stale);

  std::unique_ptr<ReceiverCore> core_;
  std::unique_ptr<track::Scanner> scanner_;
  std::vector<std::unique_ptr<Decoder>> decoders_;  // the decoders of the coding threads
  std::unique_ptr<WorkPool> workers_;
  std::vector<std::unique_ptr<ReceiveLane>> lanes_;
  std::vector<track::ChunkRange> ranges_;
  std::vector<ReceiverCore::ScanItem> items_;
  std::thread scan_thread_;
};

}  // namespace ckpt::engine
