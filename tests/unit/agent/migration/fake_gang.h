// SPDX-License-Identifier: Apache-2.0
// The object GangMoves of a node that has no moves of ranks yet, and the parts that it needs.
#pragma once

#include <memory>
#include <string>

#include "agent/migration/gangs/gang_moves.h"

namespace ckpt::agent {

class FakeGangNode {
 public:
  // `folder` contains the journal and a socket.
  FakeGangNode(asio::io_context& io, asio::thread_pool& disk, const std::string& folder,
               MigrationContext& context, GangPort& link)
      : peers_(make_peers(io, folder)),
        moves(context, link, *peers_,
              GangDriver::Machines{io,
                                   disk,
                                   gang::GangJournal::open(folder + "/gang-journal").value(),
                                   {},
                                   [](const Error& error) { throw std::runtime_error(error.to_string()); }}) {
  }

 private:
  static std::unique_ptr<PeerLinks> make_peers(asio::io_context& io, const std::string& folder) {
    PeerLinks::Settings settings;
    settings.node = "node-a";
    settings.listen = "unix:" + folder + "/peers.sock";
    settings.port_file = folder + "/peer.port";
    return PeerLinks::create(io.get_executor(), std::move(settings), [](const auto& /*message*/) {}).value();
  }
  std::unique_ptr<PeerLinks> peers_;

 public:
  GangMoves moves;
};

}  // namespace ckpt::agent
