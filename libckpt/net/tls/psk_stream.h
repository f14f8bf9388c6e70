// SPDX-License-Identifier: Apache-2.0
// One end of a TLS connection with a pre-shared key (psk_context.h), over a nonblocking TCP socket. Nothing
// here blocks. Records are gathered and sent many at a time:
//   CKPT_TRY(stream, PskStream::client(context, std::move(socket), identity, key));
//   CKPT_TRY(ready, stream->handshake());      again when poll() reports events() of fd()
//   CKPT_TRY(taken, stream->write(bytes));     0: full; again when poll() reports events()
//   CKPT_TRY(sent, stream->flush());           false: the rest when poll() reports events()
//   CKPT_TRY(got, stream->read(span));         0: nothing there; poll() then
// The socket may still be connecting. Every record is authenticated and has a number. What is changed,
// repeated, left out or exchanged on the way ends the stream, and none of it is handed out.
//
// Threads: one at a time. Ownership: the stream owns its socket; spans are the caller's and are not kept.
// Errors: kUnavailable when the connection has ended or the peer refuses. Its answer to a wrong key is that
// to an unknown identity. kProtocol for what is not TLS as agreed. After an error every call fails with it.
// No signal is raised by a connection that has ended.
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
  // Bytes after which a key is replaced. AES-GCM is sound for 2^24.5 full records under one key (RFC 8446,
  // 5.5), which is 388 GiB.
  static constexpr std::uint64_t kRekeyBytes = std::uint64_t{64} << 30;

  static Result<std::unique_ptr<PskStream>> client(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                                   std::string identity, const PskKey& key);
  static Result<std::unique_ptr<PskStream>> server(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                                   FindPsk find);

  // True once the peer has shown the key and this end has shown it; nothing is read or written before.
  Result<bool> handshake();
  // Makes the buffers that a stream of bulk needs; a handshake does with less.
  void widen();
  // At least one byte, or 0: there is none now.
  Result<std::size_t> read(std::span<std::byte> to);
  // How many bytes were taken; they may be reused then. Up to kRecordBytes are taken whole or not at all.
  Result<std::size_t> write(std::span<const std::byte> from);
  static constexpr std::size_t kRecordBytes = 16384;
  // Hands records to the socket; true: all of them.
  Result<bool> flush();
  // Ends the stream in order, as far as the socket takes it at once.
  void finish() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  // The events to poll for: POLLIN, and POLLOUT where records wait for the socket.
  [[nodiscard]] short events() const noexcept;
  // Replaces the key after so many bytes.
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
  std::unique_ptr<PskRole> role_;  // until the handshake is done
  std::vector<std::byte> out_;     // records for the socket, from begin_ to end_
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  int socket_error_ = 0;     // errno of the socket
  bool socket_end_ = false;  // the peer's end of the TCP connection
  bool ready_ = false;
  std::uint64_t rekey_bytes_ = kRekeyBytes;
  std::uint64_t since_rekey_ = 0;
  std::optional<Error> error_;
  UniqueSsl ssl_;  // last, as its end may still use the rest
};

}  // namespace ckpt::tls
