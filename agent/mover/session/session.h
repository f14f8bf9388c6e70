// SPDX-License-Identifier: Apache-2.0
// One rank of one migration on this GPU: the job's imported memory and tensors, and the common part of the
// two sides.
//
// Threads: the control loop calls the handle_*() functions. Sessions run their engine on separate threads.
// Ownership: a session holds the job's memory until it is destroyed, or until drop_regions() of the memory.
// Afterwards nothing is mapped any more (ENG-7).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/mover/session/agent_link.h"
#include "agent/mover/session/gpu.h"
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/engine/shared/region.h"
#include "libckpt/datapath/track/fingerprint.h"
#include "libckpt/datapath/transport/transport.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::mover {

struct SessionSecrets {
  track::FingerprintKey key{};
  transport::SessionToken token{};
};
Result<SessionSecrets> secrets_of(const messages::OpenSession& open);

// Memory of another process that is mapped here while a `mapping` is held.
struct AttachedRegion {
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr address = 0;
  std::shared_ptr<const void> mapping;
};

class Session {
 public:
  Session(Gpu& gpu, AgentLink& agent, const messages::OpenSession& open, const SessionSecrets& secrets)
      : gpu_(gpu),
        agent_(agent),
        key_(open.session),
        network_(open.network),
        first_path_(open.first_path),
        paths_(open.paths),
        secrets_(secrets),
        identity_{open.session.migration, open.incarnation, open.session.rank} {}
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void attach_regions(const messages::AttachRegions& request, std::vector<UniqueFd> descriptors);
  void drop_regions(const messages::DropRegions& request);
  virtual void attach_tensors(const messages::AttachTensors& request);
  virtual void drop_tensors(const messages::DropTensors& request);
  // Handles a message that only one of the sides knows. Returns false if this side does not know it.
  virtual bool handle(messages::Packet& packet) = 0;
  // Sets the reason for the end of the session, if the migration is not over. Call this before the session is
  // destroyed.
  void ends_because(std::string reason) { end_reason_ = std::move(reason); }
  // Does the session's periodic work. The control loop calls it a few times a second.
  virtual void tick() {}
  // Ends the session's work when the agent no longer needs the session. The session is destroyed after
  // is_over() returns true, and its destruction then takes no time.
  virtual void wind_up() {}
  [[nodiscard]] virtual bool is_over() const { return true; }
  // Reports the first failure. Later calls do nothing.
  void fail(const Error& error);

 protected:
  // Releases everything that uses the region. The region was already removed from regions_, and the caller
  // does not hold the lock.
  virtual void release(std::uint64_t region) = 0;
  virtual void attached() = 0;  // hook for a crash point after memory was attached
  [[nodiscard]] const std::string& end_reason() const noexcept { return end_reason_; }
  // Creates the transport. Call this before the lanes are created. The lanes are destroyed before the
  // session.
  Result<void> use_network();

  Gpu& gpu_;
  AgentLink& agent_;
  const messages::SessionKey key_;
  // The network and the paths of the session's lanes, from messages::OpenSession.
  const std::string network_;
  const std::uint32_t first_path_;
  const std::uint32_t paths_;
  std::unique_ptr<transport::Transport> transport_;  // created by use_network()
  const SessionSecrets secrets_;
  const engine::SessionIdentity identity_;
  std::mutex mutex_;  // guards regions_, tensors_, failed_
  std::map<std::uint64_t, AttachedRegion> regions_;
  std::vector<wire::TensorInfo> tensors_;

 private:
  Result<void> import_all(const messages::AttachRegions& request, std::vector<UniqueFd>& descriptors);
  bool failed_ = false;
  std::string end_reason_;
};

}  // namespace ckpt::mover
