// SPDX-License-Identifier: Apache-2.0
// The parts of the messages between an agent and its movers: limits, the session's key, a failure, a region.
// mover_messages.h has the order and the rules of all these messages.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libckpt/base/error.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::wire::mover {

inline constexpr int kSocketFd = 3;
inline constexpr std::size_t kMaxPacketBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxRegions = 64;      // the maximum number of regions in one AttachRegions or
                                                    // MadeRegions, with one descriptor each
inline constexpr std::size_t kMaxFillRegions = 32;  // the maximum number of regions in one FillRegions, with
                                                    // two descriptors each
// The rank in the keys of FillRegions and its answers, which belong to no session. The key also has a number
// that the agent chooses.
inline constexpr std::uint32_t kFillRank = 0xffff'ffff;
// The rank in the key of a snapshot's or restore's session. The key also has a number that the agent chooses.
inline constexpr std::uint32_t kCheckpointStoreRank = 0xffff'fffe;
// The rank in the key of a check's session. The key also has a number that the agent chooses.
inline constexpr std::uint32_t kCheckRank = 0xffff'fffd;
inline constexpr std::size_t kMaxTensors = 96;  // the maximum number of tensors in one AttachTensors
inline constexpr std::size_t kMaxLanes = 8;

#define CKPT_MOVER_MESSAGE(Name)                           \
  static constexpr std::uint8_t kVersion = 1, kCompat = 1; \
  static constexpr std::string_view kName = #Name

struct SessionKey {
  CKPT_MOVER_MESSAGE(SessionKey);
  SessionKey() = default;
  SessionKey(MigrationId m, std::uint32_t r) : migration(m), rank(r) {}
  MigrationId migration = 0;
  std::uint32_t rank = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, rank);
  }
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

struct Failure {
  CKPT_MOVER_MESSAGE(Failure);
  Failure() = default;
  explicit Failure(const Error& error) : code(error.code()), text(error.to_string()) {}
  [[nodiscard]] Error to_error() const { return {code, text}; }
  ErrorCode code = ErrorCode::kInternal;
  std::string text;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(code, text);
  }
};

struct RegionInfo {
  CKPT_MOVER_MESSAGE(RegionInfo);
  RegionInfo() = default;
  RegionInfo(std::uint64_t region_id, std::uint64_t region_generation, std::uint64_t region_bytes)
      : id(region_id), generation(region_generation), bytes(region_bytes) {}
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, generation, bytes);
  }
};

}  // namespace ckpt::wire::mover
