// SPDX-License-Identifier: Apache-2.0
// Messages of a vault's files over a TCP connection: a small head and up to 8 MiB of a file's bytes. Each is
// under a checksum (XXH3-64), so that damage on the way is found before use. Blocking.
//
//   magic u32 "GPVF" | head_bytes u32 | payload_bytes u32 | 0 u32 | head hash u64 | payload hash u64 | head |
//   payload little endian
//
// Threads: one at a time; shut_down() from any, it ends what the other is at. Ownership: owns the socket.
// Errors: kUnavailable: the other side is gone; kTimedOut: it sends nothing in the middle of a message.
// kProtocol: the bytes are no message, or damaged. The stream cannot be used after any of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::vault {

inline constexpr std::size_t kMaxPayloadBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxHeadBytes = std::size_t{4} << 20;  // a long folder

class FrameStream {
 public:
  using Wait = std::chrono::milliseconds;
  static constexpr Wait kForever{-1};

  FrameStream() = default;
  explicit FrameStream(UniqueFd socket) : socket_(std::move(socket)) {}
  // "host:port", the host an IP address or localhost.
  static Result<FrameStream> connect(const std::string& address, Wait timeout);

  Result<void> send(std::span<const std::byte> head, std::span<const std::byte> payload);
  struct Received {
    std::vector<std::byte> head;
    std::size_t payload_bytes = 0;  // in `buffer`
  };
  // `wait` is for the message's first byte. kProtocol if head or payload exceed `max_head_bytes` or `buffer`.
  Result<Received> receive(Wait wait, std::size_t max_head_bytes, std::span<std::byte> buffer);
  void shut_down() noexcept;
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }

 private:
  Result<void> read_all(std::span<std::byte> out);
  UniqueFd socket_;
};

// A listening socket at "host:port" (port 0: any), and where that is.
struct ListeningSocket {
  UniqueFd socket;
  std::string address;
};
Result<ListeningSocket> listen_at(const std::string& address);
// The next connection; kTimedOut if there is none within `wait`.
Result<FrameStream> accept_from(const UniqueFd& listening, FrameStream::Wait wait);

}  // namespace ckpt::vault
