// SPDX-License-Identifier: Apache-2.0
// One byte stream of the control plane: a socket, or TLS over a socket. It is an AsyncStream of Asio and
// Beast. Its time limit is absolute: the stream is closed when the limit has passed.
// Threads: as its executor. Ownership: owns the socket; at most one read and one write run at a time. Errors:
// those of Asio. handshake() also returns the reason of its failure as text.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/net/tls/cert_denied.h"
#include "libckpt/net/tls/cert_identity.h"
#include "libckpt/net/tls/cert_peer.h"

namespace ckpt::control {

// Checks whether the peer is admitted, by its certificate.
using Admit = std::function<Result<void>(const tls::Peer&)>;

// The use of TLS by a listener or a dialer. Without an identity, TLS is not used.
struct TlsSettings {
  std::shared_ptr<tls::Identity> identity;
  Admit admit;  // the check of the peer, which an identity requires
  [[nodiscard]] explicit operator bool() const noexcept { return identity != nullptr; }
};
// Returns a check that admits every node of the cluster.
[[nodiscard]] Admit any_node();
// Returns a check that admits `expected` only.
[[nodiscard]] Admit only(tls::Peer expected);
// Returns a check that refuses denied certificates and otherwise applies `admit`. Without a list, no
// certificate is denied.
[[nodiscard]] Admit except(std::shared_ptr<const tls::DeniedSerials> denied, Admit admit);

class Stream {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  using executor_type = Socket::executor_type;
  using Done = std::function<void(const boost::system::error_code&, std::size_t)>;
  enum class Side { kAccepts, kDials };

  explicit Stream(Socket socket);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  // Puts TLS over the socket; does nothing without an identity. Call this before the first byte has passed.
  Result<void> use(const TlsSettings& tls);
  // Performs the handshake. A stream with TLS carries no data before the handshake has succeeded. The peer is
  // then an admitted peer. A stream without TLS succeeds at once.
  void handshake(Side side, std::function<void(Result<void>)> done);
  Task<Result<void>> handshake(Side side);
  // Checks again, after the handshake, whether the peer is admitted: the admitted peers may have changed.
  [[nodiscard]] Result<void> still_admitted() const;
  // Returns the peer. Returns nobody for a stream without TLS, since its peer is unknown.
  [[nodiscard]] const tls::Peer& peer() const noexcept { return peer_; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, asio::mutable_buffer buffer) { read_some(buffer, shared(std::move(handler))); },
        token, first_of<asio::mutable_buffer>(buffers));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, asio::const_buffer buffer) { write_some(buffer, shared(std::move(handler))); },
        token, first_of<asio::const_buffer>(buffers));
  }

  executor_type get_executor();
  Socket& socket() noexcept;
  void close();   // closes the stream; pending operations fail
  void cancel();  // cancels pending operations, which fail; the stream remains usable
  void close_after(std::chrono::milliseconds time);
  void close_never();

 private:
  struct Tls;
  template <class Buffer, class Buffers>
  static Buffer first_of(const Buffers& buffers) {
    const auto end = asio::buffer_sequence_end(buffers);
    for (auto at = asio::buffer_sequence_begin(buffers); at != end; ++at)
      if (Buffer buffer(*at); buffer.size() > 0) return buffer;
    return {};
  }
  template <class Handler>
  static Done shared(Handler handler) {
    return [owned = std::make_shared<Handler>(std::move(handler))](
               const boost::system::error_code& code, std::size_t bytes) { (*owned)(code, bytes); };
  }
  void read_some(asio::mutable_buffer buffer, Done done);
  void write_some(asio::const_buffer buffer, Done done);
  [[nodiscard]] Result<void> after_handshake(const boost::system::error_code& code);

  struct Limited;
  // The state that is shared with the timer, which may fire after the stream is destroyed.
  std::shared_ptr<Limited> limited_;
  std::unique_ptr<Tls> tls_;
  Admit admit_;
  tls::Peer peer_;
};

}  // namespace ckpt::control
