// SPDX-License-Identifier: Apache-2.0
// One end of a TLS connection with a pre-shared key (psk_context.h), over a nonblocking TCP socket. No call
// blocks. Records are collected and sent in batches:
//   CKPT_TRY(stream, PskStream::client(context, std::move(socket), identity, key));
//   CKPT_TRY(ready, stream->handshake());      again when poll() reports events() of fd()
//   CKPT_TRY(taken, stream->write(bytes));     0: full; again when poll() reports events()
//   CKPT_TRY(sent, stream->flush());           false: the rest when poll() reports events()
//   CKPT_TRY(got, stream->read(span));         0: nothing there; poll() then
// The socket may still be connecting. Every record is authenticated and numbered. A changed, repeated,
// omitted or reordered record ends the stream, and its data is never returned.
//
// Threads: one at a time. Ownership: the stream owns its socket. The caller owns the spans, and the stream
// does not retain them. Errors: kUnavailable when the connection has ended or the peer refuses. The answer to
// a wrong key equals the answer to an unknown identity. kProtocol for data that is not the agreed TLS. After
// an error every call fails with the same error. A closed connection raises no signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/net/tls/psk_context.h"

namespace ckpt::tls {

class PskStream {
 public:
  // The number of bytes after which a key is replaced. AES-GCM is secure for 2^24.5 full records under one
  // key (RFC 8446, 5.5), which is 388 GiB.
  static constexpr std::uint64_t kRekeyBytes = std::uint64_t{64} << 30;

  static Result<std::unique_ptr<PskStream>> client(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                                   std::string identity, const PskKey& key);
  static Result<std::unique_ptr<PskStream>> server(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                                   FindPsk find);

  // Continues the handshake. Returns true once both ends have proved that they have the key. Do not read or
  // write before that.
  Result<bool> handshake();
  // Allocates the buffers for bulk data. A handshake needs smaller buffers.
  void widen();
  // Reads available data into `to` and returns the number of bytes. Returns 0 if no data is available now.
  Result<std::size_t> read(std::span<std::byte> to);
  // Encrypts data and returns the number of accepted bytes, which the caller may then overwrite. A write of
  // at most kRecordBytes is accepted whole or not at all.
  Result<std::size_t> write(std::span<const std::byte> from);
  static constexpr std::size_t kRecordBytes = 16384;
  // Writes the collected records to the socket. Returns false if the socket did not accept all of them.
  Result<bool> flush();
  // Closes this end of the stream with TLS's close message. The message and the remaining records are sent
  // only as far as the socket accepts them at once.
  void finish() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  // Returns the events to poll for: POLLIN, and also POLLOUT while records wait for the socket.
  [[nodiscard]] short events() const noexcept;
  // Sets the number of bytes after which the key is replaced.
  void set_rekey_bytes(std::uint64_t bytes) noexcept { rekey_bytes_ = bytes; }

 private:
  friend struct PskBio;
  PskStream(std::shared_ptr<const PskContext> context, UniqueFd socket, PskRole role);
  static Result<std::unique_ptr<PskStream>> make(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                                 PskRole role);
  [[nodiscard]] std::size_t waiting() const noexcept { return end_ - begin_; }
  bool make_space();
  Result<void> rekey_if_due();
  Result<void> check_handshake() const;
  void send_some() noexcept;
  [[nodiscard]] Error fail(const char* what);
  Error broken(Error error);

  std::shared_ptr<const PskContext> context_;
  UniqueFd socket_;
  std::unique_ptr<PskRole> role_;  // the data for the handshake; set until the handshake is done
  std::vector<std::byte> out_;     // the records for the socket, from begin_ to end_
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  int socket_error_ = 0;     // the errno of the call that failed on the socket; 0 if none failed
  bool socket_end_ = false;  // whether the peer has closed its end of the TCP connection
  bool ready_ = false;
  std::uint64_t rekey_bytes_ = kRekeyBytes;
  std::uint64_t since_rekey_ = 0;
  std::optional<Error> error_;
  UniqueSsl ssl_;  // declared last, because its destructor may still use the other members
};

}  // namespace ckpt::tls
