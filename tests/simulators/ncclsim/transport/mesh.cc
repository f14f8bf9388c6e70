// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/transport/mesh.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ncclsim {
namespace {

constexpr auto kTimeForHello = std::chrono::seconds(30);
constexpr std::size_t kMaxUnauthenticatedPeers = 64;

}  // namespace

// The progress of the flows of one exchange.
class Mesh::Progress {
 public:
  Progress(Mesh* mesh, const std::vector<Flow>& flows) : mesh_(mesh) {
    for (const Flow& flow : flows) sides_.push_back({&flow});
  }

  ncclResult_t run(const Limits& limits) {
    for (;;) {
      NCCLSIM_TRY(advance(limits));
      if (std::all_of(sides_.begin(), sides_.end(), [this](const Side& side) { return ended(side); }))
        return ncclSuccess;
      NCCLSIM_TRY(wait(limits));
    }
  }

 private:
  struct Side {
    const Flow* flow;
    std::size_t out = 0;
    std::size_t out_done = 0;
    std::size_t in = 0;
    std::size_t in_done = 0;
  };

  Peer& peer_of(const Side& side) const { return mesh_->peers_[static_cast<std::size_t>(side.flow->peer)]; }
  [[nodiscard]] bool ended(const Side& side) const {
    return peer_of(side).state == State::kOpen && side.out == side.flow->out.size() &&
           side.in == side.flow->in.size();
  }

  ncclResult_t advance(const Limits& limits) {
    for (Side& side : sides_) {
      Peer& peer = peer_of(side);
      if (peer.state == State::kNone && mesh_->rank_ < side.flow->peer)
        NCCLSIM_TRY(mesh_->begin(side.flow->peer));
      if (peer.state == State::kConnecting) NCCLSIM_TRY(mesh_->finish_connect(side.flow->peer, limits));
      if (peer.state != State::kOpen) continue;
      NCCLSIM_TRY(send(&side, peer.socket.get()));
      NCCLSIM_TRY(receive(&side, peer.socket.get()));
    }
    return ncclSuccess;
  }

  static ncclResult_t send(Side* side, int socket) {
    while (side->out < side->flow->out.size()) {
      const Outbound& part = side->flow->out[side->out];
      std::size_t moved = 0;
      if (side->out_done < part.bytes) {
        NCCLSIM_TRY(send_some(socket, static_cast<const char*>(part.data) + side->out_done,
                              part.bytes - side->out_done, &moved));
        if (moved == 0) return ncclSuccess;
      }
      side->out_done += moved;
      if (side->out_done < part.bytes) continue;
      side->out++;
      side->out_done = 0;
    }
    return ncclSuccess;
  }

  static ncclResult_t receive(Side* side, int socket) {
    while (side->in < side->flow->in.size()) {
      const Inbound& part = side->flow->in[side->in];
      std::size_t moved = 0;
      if (side->in_done < part.bytes) {
        NCCLSIM_TRY(receive_some(socket, static_cast<char*>(part.data) + side->in_done,
                                 part.bytes - side->in_done, &moved));
        if (moved == 0) return ncclSuccess;
      }
      side->in_done += moved;
      if (side->in_done < part.bytes) continue;
      if (part.check) NCCLSIM_TRY(part.check());
      side->in++;
      side->in_done = 0;
    }
    return ncclSuccess;
  }

  // Waits until data can be moved, or a connection can be accepted or established.
  ncclResult_t wait(const Limits& limits) {
    std::vector<pollfd> polled{{limits.stop != nullptr ? limits.stop->descriptor() : -1, POLLIN, 0},
                               {mesh_->listener_.get(), POLLIN, 0}};
    Clock::time_point until = limits.deadline;
    for (const Stranger& stranger : mesh_->unauthenticated_peers_) {
      polled.push_back({stranger.socket.get(), POLLIN, 0});
      until = std::min(until, stranger.deadline);
    }
    for (const Side& side : sides_) {
      const Peer& peer = peer_of(side);
      if (peer.state == State::kNone || ended(side)) continue;
      const bool writes = peer.state == State::kConnecting || side.out < side.flow->out.size();
      const bool reads = peer.state == State::kOpen && side.in < side.flow->in.size();
      polled.push_back(
          {peer.socket.get(), static_cast<short>((writes ? POLLOUT : 0) | (reads ? POLLIN : 0)), 0});
    }
    const int ready = ::poll(polled.data(), polled.size(), milliseconds_until(until));
    NCCLSIM_CHECK(ready >= 0 || errno == EINTR, ncclSystemError, "poll: %s", std::strerror(errno));
    NCCLSIM_CHECK(limits.stop == nullptr || !limits.stop->is_set(), ncclInternalError, "aborted");
    NCCLSIM_CHECK(Clock::now() < limits.deadline, ncclSystemError, "a peer has not answered in time");
    mesh_->accept_strangers();
    mesh_->read_hellos();
    return ncclSuccess;
  }

  Mesh* mesh_;
  std::vector<Side> sides_;
};

ncclResult_t Mesh::listen(Endpoint* at) {
  Endpoint address;
  NCCLSIM_TRY(own_address(&address));
  return listen_at(address, &listener_, at);
}

void Mesh::set_peers(int rank, std::vector<Endpoint> peers, std::uint64_t secret, std::uint32_t purpose) {
  rank_ = rank;
  secret_ = secret;
  purpose_ = purpose;
  peers_.resize(peers.size());
  for (std::size_t i = 0; i < peers.size(); i++) peers_[i].at = peers[i];
}

ncclResult_t Mesh::exchange(const std::vector<Flow>& flows, const Limits& limits) {
  return Progress(this, flows).run(limits);
}

ncclResult_t Mesh::connect(const std::vector<int>& peers, const Limits& limits) {
  std::vector<Flow> flows;
  for (const int peer : peers) flows.push_back({peer, {}, {}});
  return exchange(flows, limits);
}

void Mesh::drop(int peer) {
  // The descriptor stays open, but the next use of the connection fails.
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size()) return;
  const Descriptor& socket = peers_[static_cast<std::size_t>(peer)].socket;
  if (socket.valid()) ::shutdown(socket.get(), SHUT_RDWR);
}

void Mesh::close() {
  listener_.reset();
  peers_.clear();
  unauthenticated_peers_.clear();
}

ncclResult_t Mesh::begin(int peer) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  NCCLSIM_TRY(begin_connect(entry.at, &entry.socket));
  entry.state = State::kConnecting;
  return ncclSuccess;
}

ncclResult_t Mesh::finish_connect(int peer, const Limits& limits) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  pollfd polled{entry.socket.get(), POLLOUT, 0};
  if (::poll(&polled, 1, 0) <= 0) return ncclSuccess;
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(entry.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  NCCLSIM_CHECK(error == 0, ncclRemoteError, "rank %d cannot be reached: %s", peer, std::strerror(error));
  const Hello hello{secret_, purpose_, rank_, peer, 0};
  NCCLSIM_TRY(send_all(entry.socket.get(), &hello, sizeof hello, limits));
  entry.state = State::kOpen;
  return ncclSuccess;
}

void Mesh::accept_strangers() {
  for (;;) {
    Descriptor socket = accept_from(listener_.get());
    if (!socket.valid()) return;
    if (unauthenticated_peers_.size() >= kMaxUnauthenticatedPeers) continue;
    Stranger& stranger = unauthenticated_peers_.emplace_back();
    stranger.socket = std::move(socket);
    stranger.deadline = Clock::now() + kTimeForHello;
  }
}

void Mesh::read_hellos() {
  for (Stranger& stranger : unauthenticated_peers_) {
    std::size_t moved = 0;
    char* to = reinterpret_cast<char*>(&stranger.hello) + stranger.got;
    const ncclResult_t result =
        receive_some(stranger.socket.get(), to, sizeof stranger.hello - stranger.got, &moved);
    stranger.got += moved;
    const bool complete = stranger.got == sizeof stranger.hello;
    if (result != ncclSuccess || Clock::now() > stranger.deadline || (complete && !admit(&stranger))) {
      stranger.socket.reset();
    }
  }
  unauthenticated_peers_.remove_if([](const Stranger& stranger) { return !stranger.socket.valid(); });
}

bool Mesh::admit(Stranger* stranger) {
  const Hello& hello = stranger->hello;
  const bool known = hello.secret == secret_ && hello.purpose == purpose_ && hello.to == rank_ &&
                     hello.from >= 0 && hello.from < rank_;
  if (!known) return false;
  Peer& peer = peers_[static_cast<std::size_t>(hello.from)];
  if (peer.state != State::kNone) return false;
  peer.socket = std::move(stranger->socket);
  peer.state = State::kOpen;
  return true;
}

}  // namespace ncclsim
