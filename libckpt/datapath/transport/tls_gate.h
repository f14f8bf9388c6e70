// SPDX-License-Identifier: Apache-2.0
// The listening side of a TLS lane before its peer has connected. A connection is an unauthenticated peer
// until the handshake is done and its HELLO has arrived. The number of these peers is small, and each has
// one deadline for both. When there are too many, the oldest that has not shown the key is dropped. Neither
// silent nor slow connections can therefore block the right peer. From a peer that has not shown the key,
// only the handshake is read.
// Threads: the lane's. Ownership: the gate owns its listener and the unauthenticated peers. Errors: only
// those of listen().
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/transport/frames.h"
#include "libckpt/datapath/transport/tls_socket.h"
#include "libckpt/net/tls/psk_stream.h"

namespace ckpt::transport {

// Returns the key of a session's lanes.
Result<tls::PskKey> lane_psk(const SessionToken& token);

// A reader of frames, with their headers, from a stream.
class FrameReader {
 public:
  // Returns the next frame, or nullopt if it has not arrived completely. The view is valid until the next
  // call.
  Result<std::optional<FrameView>> read(tls::PskStream& stream);

 private:
  std::array<std::byte, kMaxFrameBytes> bytes_{};
  std::size_t have_ = 0;
  bool taken_ = false;
};

class TlsGate {
 public:
  static constexpr std::size_t kMaxUnauthenticatedPeers = 16;
  static constexpr std::size_t kMaxWatched = kMaxUnauthenticatedPeers + 1;

  static Result<std::unique_ptr<TlsGate>> listen(std::shared_ptr<const tls::PskContext> context,
                                                 const LaneAddress& local, PortRange ports,
                                                 const SessionToken& token, Nanos greeting_nanos);
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  struct Arrival {
    std::unique_ptr<tls::PskStream> stream;
    SameHostOffer offer;
  };
  // Continues the handshakes and accepts connections. Returns the peer once it has connected, otherwise
  // nullopt.
  std::optional<Arrival> progress();
  // Fills `to` with the descriptors to poll, and returns their number.
  std::size_t watch(std::span<pollfd> to) const;
  // Returns the time at which progress() has work without an event. Returns nullopt if there is no such time.
  [[nodiscard]] std::optional<Nanos> next_deadline() const;

 private:
  struct UnauthenticatedPeer {
    std::unique_ptr<tls::PskStream> stream;
    FrameReader frames;
    Nanos deadline = 0;
    bool knows_key = false;
    bool unwanted = false;
  };
  TlsGate(std::shared_ptr<const tls::PskContext> context, const SessionToken& token, tls::PskKey key,
          Nanos greeting_nanos)
      : context_(std::move(context)), token_(token), key_(key), greeting_nanos_(greeting_nanos) {}
  void admit(Nanos now);
  bool make_space();
  void admit_one(UniqueFd socket, Nanos now);
  void step(UnauthenticatedPeer& peer);

  std::shared_ptr<const tls::PskContext> context_;
  const SessionToken token_;
  const tls::PskKey key_;
  const Nanos greeting_nanos_;
  std::string address_;
  UniqueFd listener_;
  Nanos no_accept_before_ = 0;  // set after a failed accept(2), such as when no descriptors are free
  // the unauthenticated peers, oldest first
  std::vector<std::unique_ptr<UnauthenticatedPeer>> unauthenticated_peers_;
  std::optional<Arrival> arrival_;
};

}  // namespace ckpt::transport
