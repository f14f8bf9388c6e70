// SPDX-License-Identifier: Apache-2.0
// The state that the receiver's threads share: the target's regions with their fingerprints, the table that
// verifies the handover, incoming blobs, and the first error. Internal to the engine; receiver.h is the
// public interface.
//
// Threads: any; one lock, taken once per message. Delegate calls are made without the lock, on a lane's
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/datapath/codec/codec.h"
#include "libckpt/datapath/engine/shared/fault_hooks.h"
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/engine/shared/pinned_memory.h"
#include "libckpt/datapath/engine/shared/region.h"
#include "libckpt/datapath/engine/target/host_memory_reservation.h"
#include "libckpt/datapath/track/scanner.h"
#include "libckpt/datapath/track/sent_map.h"

namespace ckpt::engine {

// The places of the source's regions at the target.
struct PlanPlaces {
  std::uint64_t chunk_bytes = 0;
  std::vector<TransferRegion> regions;  // the regions of this plan; earlier regions stay
};

struct VerifiedReport {
  track::Fingerprint root;
  std::uint64_t state_bytes = 0;
  std::uint64_t scanned_bytes = 0;
  Nanos final_heard_ns = 0;
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_chunk_ns = 0;
  Nanos manifest_heard_ns = 0;
  Nanos verified_ns = 0;
};

class ReceiverDelegate {
 public:
  virtual ~ReceiverDelegate() = default;
  virtual Result<PlanPlaces> on_plan(std::span<const std::byte> plan) = 0;
  virtual void on_first_chunk() {}
  // Reports that the source's job has freed a region. The engine holds the region until the work in progress
  // has ended.
  virtual void on_dropped(std::uint64_t /*region*/) {}
  virtual void on_final() {}
  // Reports how much of the host state has arrived in this memory. Each call has more than the previous one.
  virtual void on_host_state(const std::shared_ptr<HostMemoryReservation>& /*memory*/,
                             std::uint64_t /*bytes*/) {}
  // Runs when the roots are equal. The delegate checks the rest of the manifest. An error is a refusal.
  virtual Result<void> on_manifest(std::span<const std::byte> manifest, const track::Fingerprint& root,
                                   const ReceivedHostState& host_state) = 0;
  virtual void on_verified(const VerifiedReport& report, ReceivedHostState host_state) = 0;
  virtual void on_failed(
      const Error&) = 0;  // called once, on any thread; also if the source disconnects before the target is
                          // verified
};

struct TargetRegion {
  TransferRegion region;
  std::vector<track::Fingerprint> held;      // the fingerprints as computed after the last write
  std::vector<std::uint8_t> known;           // whether the fingerprint is known; 0 if the chunk was never
                                             // written, or is being written
  std::vector<std::uint32_t> arrived_round;  // the round of the last message that contained the chunk
};

// The limit on the size of the source's staging memory. The actual size is smaller (the agent's setting
// staging_bytes). Pinning takes time and, for a file without allocated pages, memory.
inline constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 30;

class ReceiverCore {
 public:
  ReceiverCore(const Device& device, const SessionIdentity& id,
               std::shared_ptr<const track::FingerprintParams> root_params, ReceiverDelegate& delegate,
               FaultHooks* hooks, std::uint64_t max_plan_bytes, std::uint64_t max_host_bytes)
      : device(device),
        id(id),
        hooks(hooks),
        delegate(delegate),
        root_params_(std::move(root_params)),
        max_plan_bytes_(max_plan_bytes),
        max_host_bytes_(max_host_bytes) {}

  const Device& device;
  const SessionIdentity id;
  FaultHooks* const hooks;
  ReceiverDelegate& delegate;

  // Returns the source's staging memory, if the source is on this machine. The memory is pinned once,
  // whichever lane receives the file, and stays pinned as long as this object exists.
  Result<std::span<std::byte>> pin_source_memory(UniqueFd file, std::size_t bytes);

  // ---- chunks
  struct Placed {                          // the place of one record of a message
    std::shared_ptr<TargetRegion> region;  // the region of the record; null if the region was dropped
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    codec::Encoding encoding = codec::Encoding::kInvalid;
  };
  // Checks the records of a kChunks message and finds their places. `places` has kMaxChunks entries. All
  // chunks that must be decoded fit into one slot together.
  Result<void> place(const LaneHeader& header, std::span<const std::byte> bytes, std::size_t payload_bytes,
                     std::span<Placed> places);
  // Notes that the chunks are written and fingerprinted.
  void arrived(const LaneHeader& header, std::span<const ChunkRecord> records, std::span<const Placed> places,
               std::span<const track::Fingerprint> fingerprints);
  void drop(const DropRecord& record);

  // ---- blobs Reserves memory for the announced host state.
  Result<void> reserve_host_memory(const HostMemoryRecord& wanted);
  // Waits, after a scan, until that memory is allocated, the job is paused, or kMaxFill has passed.
  void wait_for_host_memory();
  void hurry();  // ends every wait for the host memory
  std::span<std::byte> blob_destination(const LaneHeader& header, const BlobRecord& record,
                                        std::size_t bytes);
  // Returns whether the blob is now complete.
  Result<bool> blob_received(const LaneHeader& header, const BlobRecord& record, std::size_t bytes);
  void report_host_state();
  Result<void> accept_plan();

  // ---- the verified handover
  struct ScanItem {
    std::shared_ptr<TargetRegion> region;
    std::uint32_t chunk = 0;
  };
  // Starts the table that verifies the handover, or restarts it if it was started before. Chunks of `round`
  // or later are verified on arrival. All others must be scanned and are added to the two lists.
  Result<void> begin_verify(std::uint32_t round, std::vector<track::ChunkRange>& ranges,
                            std::vector<ScanItem>& items);
  // Begins the final round, in which the job is paused: no more plans are accepted.
  Result<void> begin_final(std::uint32_t round);
  void scanned(std::span<const ScanItem> items, std::span<const track::Fingerprint> fingerprints,
               std::vector<AckRecord>& stale);
  void end_scan(Nanos begin, Nanos end, std::uint64_t bytes);
  // The answer to the manifest. On success the delegate has been called.
  struct Answer {
    VerdictRecord record;
    std::string text;
  };
  Answer verify(const track::Fingerprint& root);
  void verified();  // called after the answer was sent

  void fail(const Error& error);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(); }
  [[nodiscard]] bool is_verified() const noexcept { return verified_.load(); }
  [[nodiscard]] std::optional<Error> error() const;

 private:
  struct IncomingBlob {
    std::uint64_t total = 0;
    std::uint64_t begun = 0;
    std::uint64_t received = 0;
    bool complete = false;
    std::vector<std::byte> bytes;  // the bytes of plan and manifest
  };
  std::shared_ptr<TargetRegion> find(std::uint64_t id, std::uint64_t generation) const;
  Result<std::byte*> begin_blob(LaneMessage type, IncomingBlob& blob, std::uint64_t total);
  IncomingBlob& blob_of(LaneMessage type);
  Result<void> check_root(const track::Fingerprint& root);

  std::shared_ptr<const track::FingerprintParams> root_params_;
  std::uint64_t max_plan_bytes_;
  std::uint64_t max_host_bytes_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> verified_{false};

  mutable std::mutex mutex_;  // guards all members below
  std::map<std::uint64_t, std::shared_ptr<TargetRegion>> regions_;
  std::uint64_t chunk_bytes_ = 0;   // the chunk size of the plan; 0 if there is no plan yet
  std::uint32_t verify_round_ = 0;  // the first round whose chunks count as verified on arrival; 0 before a
                                    // verification begins
  bool final_ = false;
  bool first_chunk_seen_ = false;
  bool scan_ended_ = false;
  std::optional<track::SentMap> table_;
  VerifiedReport report_;
  IncomingBlob plan_, manifest_, host_;
  ReceivedHostState host_state_;
  std::shared_ptr<HostMemoryReservation> host_memory_;  // the memory for the host state; set until the target
                                                        // is verified
  bool host_begun_ = false;
  std::optional<PinnedMemory> source_memory_;
  std::uint64_t source_file_ = 0;  // the inode of the source's memory file
  std::optional<Error> error_;
};

}  // namespace ckpt::engine
