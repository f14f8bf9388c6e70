// SPDX-License-Identifier: Apache-2.0
// Payloads between two processes of one machine: the receiver reads them out of the sender's memory (process_vm_readv(2)), one copy
// where a socket makes two and wakes both sides many times.
//
// The sender says in its HELLO which process it is and where in its memory the session token lies. The receiver believes it if it finds
// the token there and the process runs the same program: no other process of the machine has both, so nobody can make a receiver
// read a third one's memory. Where that fails (another machine or PID namespace, no permission, memory that cannot be read), the lane
// goes on without.
//
// Threads: one at a time. Errors: kUnavailable when the process has gone, else errno of the read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/transport/transport.h"

namespace ckpt::transport {

// On the wire; pid 0: none.
struct NearOffer {
  std::uint64_t pid = 0;
  std::uint64_t address = 0;  // of the token
};

// Puts the token into the memory and names it; no offer for less memory than that takes.
[[nodiscard]] NearOffer offer_near(std::span<std::byte> memory, const SessionToken& token) noexcept;

class NearReader {
 public:
  // Empty: the offer is none, or not to be believed.
  static std::optional<NearReader> open(const NearOffer& offer, const SessionToken& token);
  // Fills `to`. The process lived when it was done: what was read is its memory.
  Result<void> read(std::uint64_t address, std::span<std::byte> to) const;

 private:
  NearReader(int pid, UniqueFd process) : pid_(pid), process_(std::move(process)) {}
  int pid_;
  UniqueFd process_;  // a pidfd
};

}  // namespace ckpt::transport
