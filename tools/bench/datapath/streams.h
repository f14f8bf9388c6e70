// SPDX-License-Identifier: Apache-2.0
// Bytes from this process to a second one over loopback. One way is a plain TCP stream, as a plain tool would
// send; the other is UCX lanes, as in the engine. Messages have the same size and come out of a ring of
// buffers that stays the same. The rings are larger than a processor's caches: a round's bytes come out of
// memory, and so must those of what it is compared with.
//
// A run's time is from the first byte until the second process has reported the last one.
// Connections are made before.
// Threads: one thread per connection inside a run; one run at a time. Ownership: a stream owns its second
// process.
// Errors: those of sockets, UCX and the second process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"
#include "tools/bench/measuring/child.h"
#include "tools/bench/measuring/device_buffer.h"

namespace ckpt::bench {

inline constexpr std::size_t kTcpMessageBytes = std::size_t{1} << 20;
// UCX lanes carry what the engine's messages carry.
[[nodiscard]] std::size_t lane_message_bytes();
// The buffer of random bytes that each end of each connection cycles through.
inline constexpr std::size_t kRingBytes = std::size_t{64} << 20;
Result<HostMemory> make_ring();

struct StreamRun {
  Nanos wall = 0;
  Nanos cpu = 0;  // of both processes
};

class ByteStreams {
 public:
  // kSameHost: lanes whose payloads the sink finds in the source's memory.
  enum class Kind : std::uint8_t { kTcp, kUcx, kSameHost };
  static Result<std::unique_ptr<ByteStreams>> start(const std::string& program, Kind kind);
  // `bytes` over so many connections at once.
  Result<StreamRun> run(unsigned connections, std::uint64_t bytes);
  Result<void> finish() { return child_->finish(); }

 private:
  ByteStreams(std::unique_ptr<Child> child, Kind kind) : child_(std::move(child)), kind_(kind) {}
  std::unique_ptr<Child> child_;
  Kind kind_;
};

// One connection's sending half: connect, then send so many messages.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual Result<void> send(std::uint64_t messages) = 0;
};
Result<std::unique_ptr<ByteSource>> connect_tcp(const std::string& address);
Result<std::unique_ptr<ByteSource>> connect_ucx(const std::string& address, bool near);

}  // namespace ckpt::bench
