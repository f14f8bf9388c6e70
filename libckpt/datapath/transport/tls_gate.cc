// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/tls_gate.h"

#include <algorithm>
#include <cerrno>

#include "libckpt/datapath/transport/session.h"

namespace ckpt::transport {
namespace {

constexpr std::string_view kKeyLabel = "gpumigrate lane psk 1";
// The number of connections that one progress() accepts.
constexpr int kMaxAccepts = 16;
constexpr Nanos kAcceptPause = 100 * kNanosPerMs;

}  // namespace

Result<tls::PskKey> lane_psk(const SessionToken& token) {
  return tls::derive_psk(token, kKeyLabel);
}

Result<std::optional<FrameView>> FrameReader::read(tls::PskStream& stream) {
  if (std::exchange(taken_, false)) have_ = 0;
  while (true) {
    std::size_t needed = sizeof(Frame);
    std::size_t behind = 0;
    if (have_ >= sizeof(Frame)) {
      CKPT_TRY(frame, parse_frame_start(bytes_.data()));
      needed += frame.header_bytes;
      behind = frame.bytes_behind();
      if (have_ == needed) {
        CKPT_TRY(view, parse_frame(bytes_.data(), have_, behind));
        taken_ = true;
        return std::optional(view);
      }
    }
    CKPT_TRY(got, stream.read(std::span(bytes_).subspan(have_, needed - have_)));
    if (got == 0) return std::optional<FrameView>{};
    have_ += got;
  }
}

Result<std::unique_ptr<TlsGate>> TlsGate::listen(std::shared_ptr<const tls::PskContext> context,
                                                 const LaneAddress& local, PortRange ports,
                                                 const SessionToken& token, Nanos greeting_nanos) {
  CKPT_TRY(key, lane_psk(token));
  std::unique_ptr<TlsGate> gate(new TlsGate(std::move(context), token, key, greeting_nanos));
  CKPT_TRY(listener, listen_tls(local, ports));
  gate->listener_ = std::move(listener);
  CKPT_TRY(bound, local_address_of(gate->listener_.get()));
  gate->address_ = format_tls_address(bound);
  gate->unauthenticated_peers_.reserve(kMaxUnauthenticatedPeers);
  return gate;
}

std::optional<TlsGate::Arrival> TlsGate::progress() {
  const Nanos now = now_ns();
  for (const auto& peer : unauthenticated_peers_) {
    if (now >= peer->deadline) peer->unwanted = true;
    if (!arrival_ && !peer->unwanted) step(*peer);
  }
  admit(now);
  std::erase_if(unauthenticated_peers_, [](const auto& peer) { return peer->unwanted; });
  return std::exchange(arrival_, std::nullopt);
}

void TlsGate::admit(Nanos now) {
  for (int i = 0; i < kMaxAccepts && now >= no_accept_before_ && !arrival_; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      admit_one(std::move(socket), now);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      no_accept_before_ = now + kAcceptPause;
    }
  }
}

// Makes space by dropping the oldest peer that has not shown the key. Data that it sent before the newest
// peer connected still counts.
bool TlsGate::make_space() {
  while (unauthenticated_peers_.size() >= kMaxUnauthenticatedPeers) {
    const auto oldest = std::find_if(unauthenticated_peers_.begin(), unauthenticated_peers_.end(),
                                     [](const auto& peer) { return !peer->knows_key; });
    if (oldest == unauthenticated_peers_.end()) return false;
    step(**oldest);
    if (arrival_) return false;
    if (!(*oldest)->knows_key) unauthenticated_peers_.erase(oldest);
  }
  return true;
}

void TlsGate::admit_one(UniqueFd socket, Nanos now) {
  if (!make_space() || !set_up_tls_socket(socket.get()).has_value()) return;
  auto stream = tls::PskStream::server(context_, std::move(socket), tls::only_psk(address_, key_));
  if (!stream.has_value()) return;
  auto peer = std::make_unique<UnauthenticatedPeer>();
  peer->stream = *std::move(stream);
  peer->deadline = now + greeting_nanos_;
  unauthenticated_peers_.push_back(std::move(peer));
}

void TlsGate::step(UnauthenticatedPeer& peer) {
  const auto ready = peer.stream->handshake();
  if (!ready.has_value()) peer.unwanted = true;
  if (!ready.has_value() || !*ready) return;
  peer.knows_key = true;
  const auto view = peer.frames.read(*peer.stream);
  if (!view.has_value()) peer.unwanted = true;
  if (!view.has_value() || !*view) return;
  peer.unwanted = true;  // drop it, unless its HELLO shows that it is the right one
  const std::optional<Hello> hello = parse_hello(**view);
  if (hello && tokens_equal(hello->token, token_)) arrival_ = Arrival{std::move(peer.stream), hello->offer};
}

std::size_t TlsGate::watch(std::span<pollfd> to) const {
  std::size_t count = 0;
  for (const auto& peer : unauthenticated_peers_)
    to[count++] = {peer->stream->fd(), peer->stream->events(), 0};
  if (now_ns() >= no_accept_before_) to[count++] = {listener_.get(), POLLIN, 0};
  return count;
}

std::optional<Nanos> TlsGate::next_deadline() const {
  std::optional<Nanos> next;
  if (now_ns() < no_accept_before_) next = no_accept_before_;
  for (const auto& peer : unauthenticated_peers_)
    next = std::min(next.value_or(peer->deadline), peer->deadline);
  return next;
}

}  // namespace ckpt::transport
