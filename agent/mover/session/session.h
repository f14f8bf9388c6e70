// SPDX-License-Identifier: Apache-2.0
// One rank of one migration on this GPU: the job's imported memory and tensors, and the common part of the
// two sides.
//
// Threads: the handle_*() calls come from the control loop; sessions run their engine on threads of their
// own. Ownership: a session holds the job's memory until it is destroyed, or until drop_regions() of it; then
// nothing is mapped any more (ENG-7).
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

// Memory of another process, mapped here while a `mapping` is held.
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
  // Handles a message that only one of the sides knows. False: this side does not.
  virtual bool handle(messages::Packet& packet) = 0;
  // Sets why the session ends, if the migration is not over. Called before it is destroyed.
  void ends_because(std::string reason) { end_reason_ = std::move(reason); }
  // Called a few times a second.
  virtual void tick() {}
  // Called when the agent needs the session no more. It is destroyed once is_over() returns true, which then
  // takes no time.
  virtual void wind_up() {}
  [[nodiscard]] virtual bool is_over() const { return true; }
  // Reports once; later calls do nothing.
  void fail(const Error& error);

 protected:
  // Called after the region has left regions_, without the lock: release everything that uses it.
  virtual void let_go(std::uint64_t region) = 0;
  virtual void attached() = 0;  // crash point
  [[nodiscard]] const std::string& end_reason() const noexcept { return end_reason_; }
  // Makes the transport. Called before the lanes are made, which end before the session.
  Result<void> use_network();

  Gpu& gpu_;
  AgentLink& agent_;
  const messages::SessionKey key_;
  // The network and the paths of its lanes: messages::OpenSession.
  const std::string network_;
  const std::uint32_t first_path_;
  const std::uint32_t paths_;
  std::unique_ptr<transport::Transport> transport_;  // set by use_network()
  const SessionSecrets secrets_;
  const engine::SessionIdentity identity_;
  std::mutex mutex_;  // regions_, tensors_, failed_
  std::map<std::uint64_t, AttachedRegion> regions_;
  std::vector<wire::TensorInfo> tensors_;

 private:
  Result<void> import_all(const messages::AttachRegions& request, std::vector<UniqueFd>& descriptors);
  bool failed_ = false;
  std::string end_reason_;
};

}  // namespace ckpt::mover
