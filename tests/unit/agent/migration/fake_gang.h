// SPDX-License-Identifier: Apache-2.0
// The object GangMoves of a node that has no moves of ranks yet, and the parts that it needs. The test plays
// the coordinator.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/migration/gangs/gang_moves.h"

namespace ckpt::agent {

// A port that stores the messages to the coordinator in their order.
class FakeGangPort : public GangPort {
 public:
  bool send(const wire::CommitMessage& message) override {
    told.push_back(message);
    return true;
  }
  bool send(const wire::RankGathered& answer) override {
    gathered.push_back(answer);
    return true;
  }
  bool send(const gang::RankGroups& answer) override {
    groups.push_back(answer);
    return true;
  }
  void reply(std::uint64_t request, const Error& reason) override { refused.emplace_back(request, reason); }
  std::vector<wire::CommitMessage> told;
  std::vector<wire::RankGathered> gathered;
  std::vector<gang::RankGroups> groups;
  std::vector<std::pair<std::uint64_t, Error>> refused;
};

class FakeGangNode {
 public:
  // Creates the node. `folder` contains the journal and a socket.
  FakeGangNode(asio::io_context& io, asio::thread_pool& disk, const std::string& folder,
               MigrationContext& context, GangPort& link)
      : peers_(io.get_executor(), settings_in(folder), nobody_),
        moves(context, link, peers_,
              GangDriver::Machines{io,
                                   disk,
                                   gang::GangJournal::open(folder + "/gang-journal").value(),
                                   {},
                                   [](const Error& error) { throw std::runtime_error(error.to_string()); }}) {
  }

 private:
  // A receiver that refuses all messages of other agents.
  class Nobody : public PeerMessages {
    bool handle(const PeerNode& /*node*/, const wire::CommitMessage& /*message*/) override { return false; }
  };
  static PeerLinks::Settings settings_in(const std::string& folder) {
    PeerLinks::Settings settings;
    settings.node = "node-a";
    settings.listen = "unix:" + folder + "/peers.sock";
    settings.port_file = folder + "/peer.port";
    return settings;
  }
  Nobody nobody_;
  PeerLinks peers_;

 public:
  GangMoves moves;
};

}  // namespace ckpt::agent
