// SPDX-License-Identifier: Apache-2.0
// One byte stream of the control plane: a socket, or TLS over it. It is an AsyncStream of Asio and Beast. Its
// time limit is absolute: a stream whose time is over is closed.
// Threads: as its executor. Ownership: owns the socket; at most one read and one write at a time. Errors:
// those of Asio; what ended a handshake, in words, from handshake().
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

// Whether the other side may be there, by its certificate.
using Admit = std::function<Result<void>(const tls::Peer&)>;

// How a listener or a dialer uses TLS; no identity: not at all.
struct TlsSettings {
  std::shared_ptr<tls::Identity> identity;
  Admit admit;  // required with an identity
  [[nodiscard]] explicit operator bool() const noexcept { return identity != nullptr; }
};
// Admits each node of the cluster.
[[nodiscard]] Admit any_node();
// Admits this one alone.
[[nodiscard]] Admit only(tls::Peer expected);
// None whose certificate is denied; else whom `admit` admits. No list: none is denied.
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

  // Puts TLS over the socket; does nothing without an identity. Before a byte has passed.
  Result<void> use(const TlsSettings& tls);
  // Until it has succeeded a stream with TLS carries nothing. It then is the other side that was admitted.
  // Plain streams succeed at once.
  void handshake(Side side, std::function<void(Result<void>)> done);
  Task<Result<void>> handshake(Side side);
  // Asks once more, of a stream after its handshake: who is admitted may have changed.
  [[nodiscard]] Result<void> still_admitted() const;
  // Nobody: not known, since there is no TLS.
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
  void close();   // what is waited for fails
  void cancel();  // the same; the stream can be used on
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
    return [kept = std::make_shared<Handler>(std::move(handler))](
               const boost::system::error_code& code, std::size_t bytes) { (*kept)(code, bytes); };
  }
  void read_some(asio::mutable_buffer buffer, Done done);
  void write_some(asio::const_buffer buffer, Done done);
  [[nodiscard]] Result<void> after_handshake(const boost::system::error_code& code);

  struct Limited;
  // Shared with the timer, which may fire when the stream has gone.
  std::shared_ptr<Limited> limited_;
  std::unique_ptr<Tls> tls_;
  Admit admit_;
  tls::Peer peer_;
};

}  // namespace ckpt::control
