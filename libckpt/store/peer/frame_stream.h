// SPDX-License-Identifier: Apache-2.0
// Messages about a checkpoint store's files over a connection with TLS 1.3 and a pre-shared key (net/tls). A
// message is a small head and up to 8 MiB of a file's bytes. TLS protects their integrity. Calls block.
//
//   magic u32 "GPVF" | head_bytes u32 | payload_bytes u32 | 0 u32 | head | payload, little endian
//
// The key and its name are derived from a secret that both sides know (FrameKey) and that is never sent.
//
// Threads: one at a time. shut_down() may be called from any thread and ends the other thread's operation.
// Ownership: owns the socket. Errors: kUnavailable: the other side has disconnected. kTimedOut: the other
// side sends nothing in the middle of a message. kProtocol: the bytes are not a message, or damaged. The
// stream cannot be used after any error.
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

namespace ckpt::checkpoint_store {

inline constexpr std::size_t kMaxPayloadBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxHeadBytes = std::size_t{4} << 20;  // the maximum size of a head, which a
                                                                    // long folder listing needs

struct FrameKey {
  std::string identity;  // the client's name for the key, which is not secret
  tls::PskKey key;
};
// Derives the key. Returns kInvalidArgument for less than 16 bytes.
Result<FrameKey> frame_key_of(std::span<const std::byte> secret);

class FrameStream {
 public:
  using Wait = std::chrono::milliseconds;
  static constexpr Wait kForever{-1};

  FrameStream() = default;
  // Connects to "host:port", where the host is an IP address or localhost. `timeout` covers connection and
  // handshake together.
  static Result<FrameStream> connect(const std::string& address, const FrameKey& key, Wait timeout);
  // Creates the server's side of an accepted connection. The handshake must follow: no other function works
  // before it.
  static Result<FrameStream> accepted(std::shared_ptr<const tls::PskContext> context, UniqueFd socket,
                                      tls::FindPsk find);
  Result<void> handshake(Wait timeout);

  Result<void> send(std::span<const std::byte> head, std::span<const std::byte> payload);
  struct Received {
    std::vector<std::byte> head;
    std::size_t payload_bytes = 0;  // the number of payload bytes in `buffer`
  };
  // Receives a message. `wait` is for the message's first byte. Returns kProtocol if head or payload exceed
  // `max_head_bytes` or `buffer`.
  Result<Received> receive(Wait wait, std::size_t max_head_bytes, std::span<std::byte> buffer);
  void shut_down() noexcept;
  explicit operator bool() const noexcept { return tls_ != nullptr; }

 private:
  explicit FrameStream(std::unique_ptr<tls::PskStream> tls) : tls_(std::move(tls)) {}
  // Reads at least one byte and returns the number of bytes. Returns kTimedOut if no byte arrives within
  // `wait`.
  Result<std::size_t> read_some(std::span<std::byte> out, Wait wait);
  Result<void> read_all(std::span<std::byte> out);
  Result<void> write_all(std::span<const std::byte> bytes);
  std::unique_ptr<tls::PskStream> tls_;
};

// A listening socket at "host:port" (port 0: any free port), and its address.
struct ListeningSocket {
  UniqueFd socket;
  std::string address;
};
Result<ListeningSocket> listen_at(const std::string& address);
// Accepts the next connection. Returns kTimedOut if there is none within `wait`.
Result<UniqueFd> accept_from(const UniqueFd& listening, FrameStream::Wait wait);

}  // namespace ckpt::checkpoint_store
