// SPDX-License-Identifier: Apache-2.0
// The mover's control loop. One thread reads the agent's socket, passes messages to sessions and fills memory
// itself. The regions of one message take milliseconds, and a job is paused for them. Ownership: the GPU's
// context, staging memory and transport, and all sessions. The loop returns when the agent has disconnected
// or the GPU is lost. All resources are then released.
#pragma once

#include <map>
#include <memory>

#include "agent/mover/region_filler.h"
#include "agent/mover/session/session.h"
#include "agent/mover/snapshots/last_snapshots.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::mover {

class Mover {
 public:
  explicit Mover(UniqueFd socket) : agent_(std::move(socket)) {}
  // Runs the loop. kUnavailable is the normal end: the agent closed its socket.
  Result<void> run();

 private:
  Result<void> wait_for_packet();
  Result<void> dispatch(messages::Packet packet);
  Result<void> configure(const messages::Configure& request);
  void open_session(const messages::OpenSession& request);
  std::unique_ptr<Session> make_session(const messages::OpenSession& request, const SessionSecrets& secrets);
  void end_session(const messages::EndSession& order);
  void bury();
  void to_session(messages::Packet& packet);
  void prepare_filler();
  void fill_regions(const messages::FillRegions& request, std::vector<UniqueFd> descriptors);

  AgentLink agent_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<RegionFiller> filler_;  // created with the first session that creates memory, or with the
                                          // first FillRegions
  LastSnapshots last_snapshots_;
  std::map<messages::SessionKey, std::unique_ptr<Session>> sessions_;
  std::map<messages::SessionKey, std::unique_ptr<Session>> ending_;  // closed sessions that still write to a
                                                                     // disk
};

}  // namespace ckpt::mover
