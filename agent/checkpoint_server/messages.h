// SPDX-License-Identifier: Apache-2.0
// Messages between the agent and gpumigrate-checkpoint-store. Each message is one packet of an inherited
// AF_UNIX SOCK_SEQPACKET socketpair (descriptor 3 in the program). The program sends one
// CheckpointStoreAnswer with id 0 when it listens, and then answers each CheckpointStoreOrder, in order. Both
// ends come from one build, but every received packet is checked.
// Threads: plain values. Errors: kProtocol from decoding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::checkpoint_store_server {

inline constexpr int kSocketFd = 3;
inline constexpr std::size_t kMaxPacketBytes = 16384;

struct CheckpointStoreOrder {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::uint64_t id = 0;
  std::string job;
  bool writes = false;
  bool into_memory = false;
  std::uint64_t lasts_ms = 0;
  std::vector<std::byte> revoke;  // token of the grant to revoke; empty if the order requests a grant
  std::uint64_t limit_bytes = 0;  // limit for all bytes that the job has in the store; 0 means no limit
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, job, writes, into_memory, lasts_ms, revoke, limit_bytes);
  }
};

struct CheckpointStoreAnswer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t id = 0;
  std::uint8_t error_code = 0;  // value of ErrorCode; 0 means success
  std::string text;             // the program's address if the id is 0; otherwise the text of the error
  std::vector<std::byte> token;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, error_code, text, token);
  }
};

}  // namespace ckpt::agent::checkpoint_store_server
