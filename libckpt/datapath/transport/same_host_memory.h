// SPDX-License-Identifier: Apache-2.0
// Payloads between two processes of one machine. The receiver reads them from the sender's memory
// (process_vm_readv(2)). That is one copy, whereas a socket makes two copies and wakes both sides many times.
//
// The sender's HELLO names its process and the address of the session token in its memory. The receiver
// accepts the offer if it finds the token there and the process runs the same program. No other process of
// the machine has both, so a receiver cannot be made to read a third process's memory. If that fails (another
// machine or PID namespace, no permission, unreadable memory), the lane continues without it. The sender may
// also name a memory file. The receiver takes its descriptor (pidfd_getfd(2)) and maps the file, and payloads
// in it are not copied at all.
//
// Threads: one at a time. Errors: kUnavailable when the process has exited, otherwise errno of the read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

// An offer in its wire form; a pid of 0 means no offer.
struct SameHostOffer {
  std::uint64_t pid = 0;
  std::uint64_t address = 0;    // the address of the token
  std::uint64_t file = 0;       // the number of the memory file's descriptor in the sender's process
  std::uint64_t mapped_at = 0;  // the address at which the sender has mapped the whole file
  std::uint64_t bytes = 0;      // the size of the file; 0 if there is none
};

// Writes the token into the memory and offers the memory. Returns no offer if the memory is shorter than the
// token.
[[nodiscard]] SameHostOffer offer_same_host(const SameHostMemory& memory, const SessionToken& token) noexcept;

// The receiver's mapping of a file of the sender. An empty span means that the file is not mapped.
struct SameHostMapping {
  std::span<const std::byte> here;
  std::uint64_t there = 0;  // the address of the file at the sender
  // Returns the place in this mapping of the bytes that the sender has at `address`. Returns an empty span if
  // the mapping does not contain all of them.
  [[nodiscard]] std::span<const std::byte> find(std::uint64_t address, std::size_t bytes) const noexcept;
};
// Passes the file to the handler, and returns the handler's mapping.
[[nodiscard]] SameHostMapping map_same_host(LaneHandler& handler, UniqueFd file, std::uint64_t there,
                                            std::size_t bytes);

class SameHostReader {
 public:
  // Opens a reader. Returns nullopt if there is no offer, or if the offer is not trustworthy.
  static std::optional<SameHostReader> open(const SameHostOffer& offer, const SessionToken& token);
  // Fills `to` from the sender's memory. Checks afterwards that the process is still alive, so the bytes are
  // from its memory.
  Result<void> read(std::uint64_t address, std::span<std::byte> to) const;
  // Maps the offered file if it is available. Otherwise the mapping is empty.
  [[nodiscard]] SameHostMapping map(const SameHostOffer& offer, LaneHandler& handler) const;

 private:
  SameHostReader(int pid, UniqueFd process) : pid_(pid), process_(std::move(process)) {}
  int pid_;
  UniqueFd process_;  // a pidfd of the sender's process
};

// The receiver's side of a peer's offer.
struct SameHostPeer {
  std::optional<SameHostReader> reader;  // the reader of the peer's memory; empty if the offer was not
                                         // accepted
  SameHostMapping mapping;
  static SameHostPeer open(const SameHostOffer& offer, const SessionToken& token, LaneHandler& handler);
  // Returns this side's access to the peer's payloads, which is reported to the peer.
  [[nodiscard]] PayloadAccess access() const noexcept;
};

// Receives a payload that the peer sent by its address. Returns its bytes in the mapping, or reads them into
// the memory from the handler. Returns kProtocol if the handler returned no memory.
Result<std::span<const std::byte>> receive_same_host(const SameHostReader& reader,
                                                     const SameHostMapping& mapping, std::uint64_t address,
                                                     std::span<const std::byte> header, std::size_t bytes,
                                                     LaneHandler& handler);

}  // namespace ckpt::transport
