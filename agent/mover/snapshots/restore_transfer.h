// SPDX-License-Identifier: Apache-2.0
// The mover's part of a restore: a target without a source. A version in a checkpoint store is read into a
// standby's memory, or into memory created for it. Each chunk's bytes are compared with the chunk's name in
// the store. After all chunks are written, the device's memory is compared with the fingerprints of the
// version.
//
// Threads: see session.h. Each session has one thread, and also the store's readers. Errors: kRefused names
// the tensor if the version does not fit this standby. kNotFound if there is no version. kCorrupt if all
// versions are damaged.
#pragma once

#include <atomic>
#include <thread>

#include "agent/mover/session/made_memory.h"
#include "agent/mover/session/session.h"
#include "agent/mover/snapshots/wide_scan.h"
#include "libckpt/protocol/wire/mover_messages.h"
#include "libckpt/store/local/checkpoint_store.h"
#include "libckpt/store/stored_job.h"

namespace ckpt::mover {

class RestoreTransfer final : public Session, private checkpoint_store::RestoreTarget {
 public:
  RestoreTransfer(Gpu& gpu, AgentLink& agent, const messages::OpenSession& open,
                  const SessionSecrets& secrets)
      : Session(gpu, agent, open, secrets), makes_memory_(open.makes_memory) {}
  ~RestoreTransfer() override;
  bool handle(messages::Packet& packet) override;
  void wind_up() override;
  [[nodiscard]] bool is_over() const override { return !working_.load(); }

 private:
  struct Place {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<const void> mapping;
    std::vector<track::Fingerprint> written;  // fingerprint of each chunk
  };

  void release(std::uint64_t region) override;
  void attached() override {}
  void start(const messages::StartRestore& request);
  void run();
  Result<void> restore();
  void report_done(const checkpoint_store::RestoreReport& report);
  Result<void> make_memory(const image::Plan& plan);
  void drop_made(const image::Plan& plan);
  Result<void> find_places(const checkpoint_store::Version& version, const image::StoredJob& stored);
  Result<void> compare();
  Result<void> read_host_state(checkpoint_store::VersionReader& reader);

  // Implements checkpoint_store::RestoreTarget.
  Result<void> begin(const checkpoint_store::Version& version) override;
  Result<void> chunk(std::uint32_t region, std::uint64_t chunk, std::span<const std::byte> bytes) override;
  Result<void> zero_chunk(std::uint32_t region, std::uint64_t chunk, std::uint64_t bytes) override;
  Result<void> finish(checkpoint_store::VersionReader& reader) override;

  const bool makes_memory_;
  const std::shared_ptr<ReclaimTracker> reclaims_ = std::make_shared<ReclaimTracker>();
  messages::StartRestore request_;
  std::thread thread_;
  std::atomic<bool> working_{false}, ending_{false};

  // Only the session's thread uses these fields, and also its readers while it waits for them.
  std::shared_ptr<const track::FingerprintParams> params_;
  std::uint64_t chunk_bytes_ = 0;
  std::vector<Place> places_;  // places of the version's regions
  UniqueFd host_file_;
  std::uint64_t host_bytes_ = 0;
};

}  // namespace ckpt::mover
