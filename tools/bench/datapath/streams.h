// SPDX-License-Identifier: Apache-2.0
// Byte streams from this process to a second one over loopback. One kind is a plain TCP stream, as a plain
// tool would send. The other kind is UCX lanes, as in the engine. Both kinds send messages of the same size
// from a ring of buffers whose content does not change. The rings are larger than a processor's caches. A
// round's bytes come from memory, so the compared bytes must come from memory too.
//
// A run's time is from the first byte until the second process has reported the last byte. Connections are
// made before the first byte.
// Threads: one thread per connection inside a run; one run at a time. Ownership: a stream owns its second
// process. Errors: those of sockets, UCX and the second process.
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
// Returns the message size of UCX lanes, the same as the engine's.
[[nodiscard]] std::size_t lane_message_bytes();
// The size of the buffer of random bytes that each end of a connection cycles through.
inline constexpr std::size_t kRingBytes = std::size_t{64} << 20;
Result<HostMemory> make_ring();

struct StreamRun {
  Nanos wall = 0;
  Nanos cpu = 0;  // processor time of both processes
};

class ByteStreams {
 public:
  // The kind of stream. kSameHost: lanes whose payloads the sink reads in the source's memory.
  enum class Kind : std::uint8_t { kTcp, kUcx, kSameHost };
  static Result<std::unique_ptr<ByteStreams>> start(const std::string& program, Kind kind);
  // Sends `bytes` bytes in total over `connections` parallel connections.
  Result<StreamRun> run(unsigned connections, std::uint64_t bytes);
  Result<void> finish() { return child_->finish(); }

 private:
  ByteStreams(std::unique_ptr<Child> child, Kind kind) : child_(std::move(child)), kind_(kind) {}
  std::unique_ptr<Child> child_;
  Kind kind_;
};

// The sending side of one connection: it connects, and then sends the given number of messages.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual Result<void> send(std::uint64_t messages) = 0;
};
Result<std::unique_ptr<ByteSource>> connect_tcp(const std::string& address);
Result<std::unique_ptr<ByteSource>> connect_ucx(const std::string& address, bool same_host);

}  // namespace ckpt::bench
