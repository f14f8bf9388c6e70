// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/stream.h"

#include <openssl/err.h>

#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace ckpt::control {

struct Stream::Tls {
  Tls(Socket& socket, SSL* ssl) : stream(socket, ssl) {}
  asio::ssl::stream<Socket&> stream;
};

Admit only(tls::Peer expected) {
  return [expected = std::move(expected)](const tls::Peer& peer) -> Result<void> {
    if (peer == expected) return ok();
    return Error(ErrorCode::kRefused,
                 "The certificate is that of " + to_text(peer) + ", not of " + to_text(expected));
  };
}

Admit any_node() {
  return [](const tls::Peer& peer) -> Result<void> {
    if (peer.kind == tls::Peer::Kind::kNode) return ok();
    return Error(ErrorCode::kRefused, "The certificate is that of " + to_text(peer) + ", not of a node");
  };
}

Admit except(std::shared_ptr<const tls::DeniedSerials> denied, Admit admit) {
  if (!denied) return admit;
  return [denied = std::move(denied), admit = std::move(admit)](const tls::Peer& peer) -> Result<void> {
    if (denied->contains(peer.serial))
      return Error(ErrorCode::kRefused, "The certificate of " + to_text(peer) + " with the serial number " +
                                            peer.serial + " is denied: see `gpumigrate cluster denied`");
    return admit(peer);
  };
}

struct Stream::Limited {
  explicit Limited(Socket opened) : socket(std::move(opened)), timer(socket.get_executor()) {}
  Socket socket;
  asio::steady_timer timer;
  unsigned turn = 0;  // the number of the current wait; a timer that has already fired is valid only for its
                      // own wait
};

Stream::Stream(Socket socket) : limited_(std::make_shared<Limited>(std::move(socket))) {}
Stream::Stream(Stream&& other) noexcept = default;
Stream::~Stream() {
  if (limited_) close();
}

Stream::executor_type Stream::get_executor() {
  return limited_->socket.get_executor();
}

Stream::Socket& Stream::socket() noexcept {
  return limited_->socket;
}

Result<void> Stream::use(const TlsSettings& tls) {
  if (!tls) return ok();
  CKPT_TRY(ssl, tls.identity->make_ssl());
  tls_ = std::make_unique<Tls>(socket(), ssl.release());
  admit_ = tls.admit;
  return ok();
}

void Stream::handshake(Side side, std::function<void(Result<void>)> done) {
  if (!tls_) return asio::post(get_executor(), [done = std::move(done)] { done(ok()); });
  const auto type = side == Side::kAccepts ? asio::ssl::stream_base::server : asio::ssl::stream_base::client;
  tls_->stream.async_handshake(type, [this, done = std::move(done)](const boost::system::error_code& code) {
    done(after_handshake(code));
  });
}

Task<Result<void>> Stream::handshake(Side side) {
  if (!tls_) co_return ok();
  const auto type = side == Side::kAccepts ? asio::ssl::stream_base::server : asio::ssl::stream_base::client;
  const auto [code] = co_await tls_->stream.async_handshake(type, kTuple);
  co_return after_handshake(code);
}

Result<void> Stream::after_handshake(const boost::system::error_code& code) {
  SSL* ssl = tls_->stream.native_handle();
  if (code) {
    ERR_clear_error();
    const long checked = SSL_get_verify_result(ssl);
    const std::string reason =
        checked != X509_V_OK ? std::string(X509_verify_cert_error_string(checked)) : code.message();
    const bool by_connection = code.category() == boost::system::system_category() ||
                               code == asio::ssl::error::stream_truncated || code == asio::error::eof;
    return Error(by_connection ? ErrorCode::kUnavailable : ErrorCode::kRefused,
                 "The TLS handshake failed: " + reason);
  }
  CKPT_TRY(peer, tls::verified_peer(ssl));
  CKPT_TRYV(admit_(peer));
  peer_ = std::move(peer);
  return ok();
}

Result<void> Stream::still_admitted() const {
  return tls_ ? admit_(peer_) : ok();
}

void Stream::read_some(asio::mutable_buffer buffer, Done done) {
  if (tls_)
    tls_->stream.async_read_some(buffer, std::move(done));
  else
    socket().async_read_some(buffer, std::move(done));
}

void Stream::write_some(asio::const_buffer buffer, Done done) {
  if (tls_)
    tls_->stream.async_write_some(buffer, std::move(done));
  else
    socket().async_write_some(buffer, std::move(done));
}

void Stream::close() {
  boost::system::error_code ignored;
  close_never();
  socket().close(ignored);
}

void Stream::cancel() {
  boost::system::error_code ignored;
  socket().cancel(ignored);
}

void Stream::close_after(std::chrono::milliseconds time) {
  const unsigned turn = ++limited_->turn;
  limited_->timer.expires_after(time);
  limited_->timer.async_wait([weak = std::weak_ptr(limited_), turn](boost::system::error_code code) {
    boost::system::error_code ignored;
    const auto limited = weak.lock();
    if (limited && !code && limited->turn == turn) limited->socket.close(ignored);
  });
}

void Stream::close_never() {
  ++limited_->turn;
  limited_->timer.cancel();
}

}  // namespace ckpt::control
