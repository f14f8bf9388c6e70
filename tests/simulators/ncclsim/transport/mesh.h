// SPDX-License-Identifier: Apache-2.0
// Connections between the ranks of a communicator. Each connection is made at its first use; the lower rank
// connects.
//
// Threads: one at a time. Ownership: the mesh's sockets. Errors: those of socket.h. A connection from outside
// the communicator is closed, without an error.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "tests/simulators/ncclsim/transport/socket.h"

namespace ncclsim {

struct Outbound {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

struct Inbound {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::function<ncclResult_t()> check;  // called once the data has arrived; may be empty
};

// The data that is sent to one peer and received from it, each in this order.
struct Flow {
  int peer = 0;
  std::vector<Outbound> out;
  std::vector<Inbound> in;
};

class Mesh {
 public:
  // Listens on the rank's address.
  ncclResult_t listen(Endpoint* at);
  // Sets the peers. The ranks recognize each other's connections by `secret` and `purpose`.
  void set_peers(int rank, std::vector<Endpoint> peers, std::uint64_t secret, std::uint32_t purpose);

  // Moves all flows in parallel; at most one flow for each peer.
  ncclResult_t exchange(const std::vector<Flow>& flows, const Limits& limits);
  // Connects to these peers immediately.
  ncclResult_t connect(const std::vector<int>& peers, const Limits& limits);
  // Closes the connection to a peer, as the peer's death would.
  void drop(int peer);
  void close();

 private:
  enum class State { kNone, kConnecting, kOpen };
  struct Peer {
    Endpoint at;
    Descriptor socket;
    State state = State::kNone;
  };
  struct Hello {
    std::uint64_t secret = 0;
    std::uint32_t purpose = 0;
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::uint32_t unused = 0;
  };
  struct Stranger {
    Descriptor socket;
    Hello hello;
    std::size_t got = 0;
    Clock::time_point deadline;
  };
  class Progress;

  ncclResult_t begin(int peer);
  ncclResult_t finish_connect(int peer, const Limits& limits);
  void accept_strangers();
  void read_hellos();
  bool admit(Stranger* stranger);

  Descriptor listener_;
  int rank_ = 0;
  std::uint64_t secret_ = 0;
  std::uint32_t purpose_ = 0;
  std::vector<Peer> peers_;
  std::list<Stranger> unauthenticated_peers_;
};

}  // namespace ncclsim
