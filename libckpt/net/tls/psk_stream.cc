// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/tls/psk_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ckpt::tls {
namespace {

// The maximum size of a record on the wire: the data, the overhead of encryption, and the header.
constexpr std::size_t kLargestRecord = PskStream::kRecordBytes + 256 + 5;
constexpr std::size_t kSmallBuffer = 2 * kLargestRecord;
// The batch size that makes a send efficient, and the size of the buffer for a full socket. With larger
// values the peer waits longer for the first record, and the records leave the CPU caches (measured).
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;
constexpr std::size_t kWideBuffer = std::size_t{256} << 10;
// The space for one record and for the message that announces a replaced key.
constexpr std::size_t kNeeded = kLargestRecord + 64;

}  // namespace

// The transport below OpenSSL. Sent records go to the stream's buffer. Received records come directly from
// the socket.
struct PskBio {
  static PskStream& stream(BIO* bio) { return *static_cast<PskStream*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* bytes, int count) {
    PskStream& to = stream(bio);
    BIO_clear_retry_flags(bio);
    const std::size_t copied = std::min(static_cast<std::size_t>(count), to.out_.size() - to.end_);
    if (copied == 0) {
      BIO_set_retry_write(bio);
      return -1;
    }
    std::memcpy(to.out_.data() + to.end_, bytes, copied);
    to.end_ += copied;
    return static_cast<int>(copied);
  }
  static int read(BIO* bio, char* bytes, int count) {
    PskStream& from = stream(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got;
    do {
      got = ::recv(from.socket_.get(), bytes, static_cast<std::size_t>(count), 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0) return static_cast<int>(got);
    if (got == 0) {
      from.socket_end_ = true;
      return 0;
    }
    if (errno == EAGAIN) {
      BIO_set_retry_read(bio);
    } else {
      from.socket_error_ = errno;
    }
    return -1;
  }
  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return stream(bio).socket_end_ ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  static int create(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }
  // Returns one method object for the whole process, because OpenSSL does not count its users.
  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gpumigrate socket");
      if (method == nullptr) return method;
      BIO_meth_set_write(method, &PskBio::write);
      BIO_meth_set_read(method, &PskBio::read);
      BIO_meth_set_ctrl(method, &PskBio::control);
      BIO_meth_set_create(method, &PskBio::create);
      return method;
    }();
    return made;
  }
};

PskStream::PskStream(std::shared_ptr<const PskContext> context, UniqueFd socket, PskRole role)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      role_(std::make_unique<PskRole>(std::move(role))),
      out_(kSmallBuffer) {}

Result<std::unique_ptr<PskStream>> PskStream::make(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                                   PskRole role) {
  std::unique_ptr<PskStream> stream(new PskStream(std::move(context), std::move(socket), std::move(role)));
  CKPT_TRY(ssl, stream->context_->make_ssl());
  stream->ssl_ = std::move(ssl);
  const BIO_METHOD* method = PskBio::method();
  BIO* bio = method != nullptr ? BIO_new(method) : nullptr;
  if (bio == nullptr) return Error(ErrorCode::kInternal, "Creating a TLS connection: " + pop_openssl_error());
  BIO_set_data(bio, stream.get());
  SSL_set_bio(stream->ssl_.get(), bio, bio);
  SSL_set_app_data(stream->ssl_.get(), stream->role_.get());
  return stream;
}

Result<std::unique_ptr<PskStream>> PskStream::client(std::shared_ptr<const PskContext> context,
                                                     UniqueFd socket, std::string identity,
                                                     const PskKey& key) {
  if (identity.empty() || identity.size() > kMaxIdentityBytes)
    return Error(ErrorCode::kInvalidArgument, "The identity of a pre-shared key must have 1 to 256 bytes");
  CKPT_TRY(stream, make(std::move(context), std::move(socket), {{}, std::move(identity), key}));
  SSL_set_connect_state(stream->ssl_.get());
  // No certificate is trusted, so no certificate can replace the PSK.
  SSL_set_verify(stream->ssl_.get(), SSL_VERIFY_PEER, nullptr);
  return std::move(stream);
}

Result<std::unique_ptr<PskStream>> PskStream::server(std::shared_ptr<const PskContext> context,
                                                     UniqueFd socket, FindPsk find) {
  CKPT_TRY(stream, make(std::move(context), std::move(socket), {std::move(find), {}, {}}));
  SSL_set_accept_state(stream->ssl_.get());
  return std::move(stream);
}

Result<bool> PskStream::handshake() {
  if (error_) return *error_;
  if (ready_) return true;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  if (done != 1) {
    const int reason = SSL_get_error(ssl_.get(), done);
    if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) return fail("The TLS handshake");
    CKPT_TRYV(flush());
    return false;
  }
  CKPT_TRYV(flush());
  const auto checked = check_handshake();
  if (!checked.has_value()) return broken(checked.error());
  SSL_set_app_data(ssl_.get(), nullptr);
  role_.reset();
  ready_ = true;
  return true;
}

// Checks again that the handshake followed the context's rules.
Result<void> PskStream::check_handshake() const {
  if (SSL_version(ssl_.get()) == TLS1_3_VERSION && SSL_session_reused(ssl_.get()) == 1) return ok();
  return Error(ErrorCode::kProtocol, "The peer has negotiated TLS without the pre-shared key");
}

void PskStream::widen() {
  if (out_.size() < kWideBuffer) out_.resize(kWideBuffer);
}

Result<std::size_t> PskStream::read(std::span<std::byte> to) {
  if (error_) return *error_;
  if (!ready_ || to.empty()) return std::size_t{0};
  ERR_clear_error();
  std::size_t got = 0;
  const int done = SSL_read_ex(ssl_.get(), to.data(), to.size(), &got);
  if (done == 1) return got;
  const int reason = SSL_get_error(ssl_.get(), done);
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) return std::size_t{0};
  return fail("Cannot read from the TLS connection");
}

// Sends records if there is too little space, and returns whether another record fits.
bool PskStream::make_space() {
  if (waiting() >= kBatchBytes || out_.size() - end_ < kNeeded) send_some();
  if (out_.size() - end_ >= kNeeded) return true;
  if (waiting() > out_.size() / 4) return false;
  std::memmove(out_.data(), out_.data() + begin_, waiting());
  end_ -= begin_;
  begin_ = 0;
  return out_.size() - end_ >= kNeeded;
}

Result<std::size_t> PskStream::write(std::span<const std::byte> from) {
  if (error_) return *error_;
  std::size_t encrypted = 0;
  while (ready_ && encrypted < from.size() && make_space()) {
    CKPT_TRYV(rekey_if_due());
    const std::size_t record = std::min(kRecordBytes, from.size() - encrypted);
    std::size_t written = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl_.get(), from.data() + encrypted, record, &written) != 1)
      return fail("Cannot write to the TLS connection");
    encrypted += written;
    since_rekey_ += written;
  }
  if (socket_error_ != 0) return fail("Cannot write to the TLS connection");
  return encrypted;
}

Result<void> PskStream::rekey_if_due() {
  if (since_rekey_ < rekey_bytes_) return ok();
  since_rekey_ = 0;
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return fail("Replacing a key");
  return ok();
}

Result<bool> PskStream::flush() {
  if (error_) return *error_;
  send_some();
  if (socket_error_ != 0) return fail("Cannot send on the TLS connection");
  return waiting() == 0;
}

void PskStream::send_some() noexcept {
  while (begin_ < end_ && socket_error_ == 0) {
    const ssize_t sent = ::send(socket_.get(), out_.data() + begin_, waiting(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) socket_error_ = errno;
    if (sent <= 0) return;
    begin_ += static_cast<std::size_t>(sent);
  }
  if (begin_ == end_) begin_ = end_ = 0;
}

void PskStream::finish() noexcept {
  if (error_ || !ready_) return;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  send_some();
  error_ = Error(ErrorCode::kAborted, "The TLS connection was ended on this side");
}

short PskStream::events() const noexcept {
  return static_cast<short>(POLLIN | (waiting() > 0 ? POLLOUT : 0));
}

// Returns the error after a failed call of OpenSSL or of the socket, and makes it permanent.
Error PskStream::fail(const char* what) {
  const unsigned long first = ERR_peek_error();
  send_some();  // sends OpenSSL's alert to the peer
  // The peer's alert may have arrived before the end of its stream, or after a failed send.
  if (ERR_GET_LIB(first) == ERR_LIB_SSL && ERR_GET_REASON(first) >= SSL_AD_REASON_OFFSET)
    return broken({ErrorCode::kUnavailable,
                   std::string(what) + ": the peer closed the connection: " + pop_openssl_error()});
  if (socket_error_ != 0)
    return broken({ErrorCode::kUnavailable, ErrorDomain::kErrno, socket_error_, std::string(what)});
  if (socket_end_ || first == 0)
    return broken({ErrorCode::kUnavailable, std::string(what) + ": the peer closed the connection"});
  return broken({ErrorCode::kProtocol, std::string(what) + ": " + pop_openssl_error()});
}

Error PskStream::broken(Error error) {
  ERR_clear_error();
  error_ = error;
  return error;
}

}  // namespace ckpt::tls
