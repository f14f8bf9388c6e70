// SPDX-License-Identifier: Apache-2.0
// Payloads between two processes of one machine. The receiver reads them out of the sender's memory
// (process_vm_readv(2)). That is one copy, where a socket makes two and wakes both sides many times.
//
// The sender's HELLO names its process and the address of the session token in its memory. The receiver
// accepts it if it finds the token there and the process runs the same program. No other process of
// the machine has both, so a receiver cannot be made to read a third process's memory. Where that fails
// (another machine or PID namespace, no permission, memory that cannot be read), the lane goes on without.
// The sender may also name a memory file. The receiver takes its descriptor (pidfd_getfd(2)) and maps it, and
// payloads in it are not copied at all.
//
// Threads: one at a time. Errors: kUnavailable when the process has gone, else errno of the read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

// On the wire; pid 0: none.
struct SameHostOffer {
  std::uint64_t pid = 0;
  std::uint64_t address = 0;    // of the token
  std::uint64_t file = 0;       // number of a descriptor
  std::uint64_t mapped_at = 0;  // where the sender has all of it
  std::uint64_t bytes = 0;      // of it; 0: there is none
};

// Writes the token into the memory and offers it. No offer where the memory is shorter than the token.
[[nodiscard]] SameHostOffer offer_same_host(const SameHostMemory& memory, const SessionToken& token) noexcept;

// A file of the sender's as the receiver has it mapped; nothing: it has not.
struct SameHostMapping {
  std::span<const std::byte> here;
  std::uint64_t there = 0;  // where the sender has it
  // The same bytes here; empty if they are not all in it.
  [[nodiscard]] std::span<const std::byte> find(std::uint64_t address, std::size_t bytes) const noexcept;
};
// Gives the file to the handler.
[[nodiscard]] SameHostMapping map_same_host(LaneHandler& handler, UniqueFd file, std::uint64_t there,
                                            std::size_t bytes);

class SameHostReader {
 public:
  // Empty: the offer is none, or not to be believed.
  static std::optional<SameHostReader> open(const SameHostOffer& offer, const SessionToken& token);
  // Fills `to`. The process was alive afterwards, so the bytes are of its memory.
  Result<void> read(std::uint64_t address, std::span<std::byte> to) const;
  // Maps the offered file, if it can be had; else the mapping is empty.
  [[nodiscard]] SameHostMapping map(const SameHostOffer& offer, LaneHandler& handler) const;

 private:
  SameHostReader(int pid, UniqueFd process) : pid_(pid), process_(std::move(process)) {}
  int pid_;
  UniqueFd process_;  // a pidfd
};

// The receiver's side of a peer's offer.
struct SameHostPeer {
  std::optional<SameHostReader> reader;  // nothing: the offer was not taken
  SameHostMapping mapping;
  static SameHostPeer open(const SameHostOffer& offer, const SessionToken& token, LaneHandler& handler);
  // This side's access to the peer's payloads, which the peer is told.
  [[nodiscard]] PayloadAccess access() const noexcept;
};

// A payload that the peer sent by its address: where it lies in the mapping, or else read into the place that
// the handler gives. kProtocol: the handler gave none.
Result<std::span<const std::byte>> receive_same_host(const SameHostReader& reader,
                                                     const SameHostMapping& mapping, std::uint64_t address,
                                                     std::span<const std::byte> header, std::size_t bytes,
                                                     LaneHandler& handler);

}  // namespace ckpt::transport
