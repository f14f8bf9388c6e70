// SPDX-License-Identifier: Apache-2.0
// The target's side of a session. It matches the source's plan with the standby's tensors (or creates the
// memory for the plan), receives data into that memory, and verifies it.
// Threads: see session.h. The receiver's threads call the delegate.
#pragma once

#include <atomic>

#include "agent/mover/session/made_memory.h"
#include "agent/mover/session/session.h"
#include "libckpt/datapath/engine/target/receiver.h"
#include "libckpt/datapath/track/fingerprint_follower.h"
#include "libckpt/protocol/wire/mover_messages.h"
#include "libckpt/store/manifest.h"
#include "libckpt/store/plan.h"

namespace ckpt::mover {

class TargetTransfer final : public Session, private engine::ReceiverDelegate {
 public:
  TargetTransfer(Gpu& gpu, AgentLink& agent, const messages::OpenSession& open, const SessionSecrets& secrets)
      : Session(gpu, agent, open, secrets),
        makes_memory_(open.makes_memory),
        is_new_program_(open.is_new_program),
        allowed_differences_(open.allowed_differences) {}
  ~TargetTransfer() override;
  bool handle(messages::Packet& packet) override;

 private:
  void release(std::uint64_t region) override;
  void attached() override;
  Result<void> start(const messages::StartTarget& request);
  Result<void> make_memory(const image::Plan& plan);
  Result<std::vector<MadeRegion>> make_once_there_is_memory(const image::Plan& plan);
  Result<image::PlanMatch> match(const image::Plan& plan, bool is_first);
  Result<void> place_dropped(const std::vector<image::Extent>& dropped, engine::PlanPlaces& places);

  // Implements engine::ReceiverDelegate.
  Result<engine::PlanPlaces> on_plan(std::span<const std::byte> plan) override;
  void on_first_chunk() override;
  void on_dropped(std::uint64_t extent) override;
  void on_final() override;
  void on_host_state(const std::shared_ptr<engine::HostMemoryReservation>& memory,
                     std::uint64_t bytes) override;
  Result<void> on_manifest(std::span<const std::byte> manifest, const track::Fingerprint& root,
                           const engine::ReceivedHostState& host_state) override;
  void on_verified(const engine::VerifiedReport& report, engine::ReceivedHostState host_state) override;
  void on_failed(const Error& error) override { fail(error); }
  [[nodiscard]] std::shared_ptr<const track::FingerprintParams> chunk_params() const;

  const bool makes_memory_;  // true if there is no standby
  const bool is_new_program_;
  const std::uint8_t allowed_differences_;
  std::atomic<bool> verified_{false};
  std::map<std::uint64_t, std::uint64_t> made_;  // region that was created for each extent; guarded by
                                                 // Session::mutex_
  const std::shared_ptr<ReclaimTracker> reclaims_ = std::make_shared<ReclaimTracker>();
  std::uint64_t chunk_bytes_ = 0;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::unique_ptr<track::FingerprintFollower> host_fingerprint_;  // used by the first lane's thread
  std::unique_ptr<engine::Receiver> receiver_;
};

}  // namespace ckpt::mover
