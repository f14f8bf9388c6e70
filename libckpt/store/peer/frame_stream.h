// SPDX-License-Identifier: Apache-2.0
// Messages of a vault's files over a connection with TLS 1.3 and a pre-shared key (net/tls). A message is a small head
// and up to 8 MiB of a file's bytes. TLS proves that they are whole. Blocking.
//
//   magic u32 "GPVF" | head_bytes u32 | payload_bytes u32 | 0 u32 | head | payload, little endian
//
// The key and its name follow from a secret that both sides know (FrameKey) and that is never sent.
//
// Threads: one at a time; shut_down() from any, it ends what the other is at. Ownership: owns the socket.
// Errors: kUnavailable: the other side is gone; kTimedOut: it sends nothing in the middle of a message.
// kProtocol: the bytes are no message, or damaged. The stream cannot be used after any of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/net/tls/psk_stream.h"

namespace ckpt::vault {

inline constexpr std::size_t kMaxPayloadBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxHeadBytes = std::size_t{4} << 20;  // a long folder

struct FrameKey {
  std::string identity;  // what a client calls it: no secret
  tls::PskKey key;
};
// kInvalidArgument for less than 16 bytes.
Result<FrameKey> frame_key_of(std::span<const std::byte> secret);

class FrameStream {
 public:
  using Wait = std::chrono::milliseconds;
  static constexpr Wait kForever{-1};

  FrameStream() = default;
  // "host:port", the host an IP address or localhost. `timeout` is for connection and handshake together.
  static Result<FrameStream> connect(const std::string& address, const FrameKey& key, Wait timeout);
  // The server's side of an accepted connection. The handshake must follow: nothing else works before it.
  static Result<FrameStream> accepted(std::shared_ptr<const tls::PskContext> context, UniqueFd socket,
                                      tls::FindPsk find);
  Result<void> handshake(Wait timeout);

  Result<void> send(std::span<const std::byte> head, std::span<const std::byte> payload);
  struct Received {
    std::vector<std::byte> head;
    std::size_t payload_bytes = 0;  // in `buffer`
  };
  // `wait` is for the message's first byte. kProtocol if head or payload exceed `max_head_bytes` or `buffer`.
  Result<Received> receive(Wait wait, std::size_t max_head_bytes, std::span<std::byte> buffer);
  void shut_down() noexcept;
  explicit operator bool() const noexcept { return tls_ != nullptr; }

 private:
  explicit FrameStream(std::unique_ptr<tls::PskStream> tls) : tls_(std::move(tls)) {}
  // At least one byte, or kTimedOut.
  Result<std::size_t> read_some(std::span<std::byte> out, Wait wait);
  Result<void> read_all(std::span<std::byte> out);
  Result<void> write_all(std::span<const std::byte> bytes);
  std::unique_ptr<tls::PskStream> tls_;
};

// A listening socket at "host:port" (port 0: any), and where that is.
struct ListeningSocket {
  UniqueFd socket;
  std::string address;
};
Result<ListeningSocket> listen_at(const std::string& address);
// The next connection; kTimedOut if there is none within `wait`.
Result<UniqueFd> accept_from(const UniqueFd& listening, FrameStream::Wait wait);

}  // namespace ckpt::vault
