// SPDX-License-Identifier: Apache-2.0
// The plan of a move of ranks, for the agents that take part, with the groups in which the ranks communicate.
// The protocol itself is in protocol/gang.
//
// A group is the ranks of a communicator of the program (ckpt_group_callbacks). A group with a moved rank
// gets a new communicator before the handover. One member makes a *ticket* (NCCL's unique id), and all
// members join with the ticket.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::gang {

using wire::Bytes;
using wire::FrameType;
using wire::Incarnation;
using wire::JobId;
using wire::MigrationId;

inline constexpr std::size_t kMaxGroups = 64;        // the maximum number of groups of one rank
inline constexpr std::size_t kMaxTicketBytes = 512;  // the maximum size of one group's ticket
inline constexpr std::size_t kMaxGroupNameBytes = 255;

struct GroupTicket {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string group;
  Bytes ticket;  // the ticket of the group; if empty, another member makes the ticket
  template <class A>
  decltype(auto) fields(A& a) {
    return a(group, ticket);
  }
};

// A rank that moves. The rank has its own migration, whose plan and id are like those of a job with one rank.
struct MovedRank {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t rank = 0;
  MigrationId migration = 0;
  Incarnation base = 0;  // the incarnation that runs at the source
  Bytes plan;            // an encoded MigrationPlan
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, migration, base, plan);
  }
};

struct StayingRank {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t rank = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::string node;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, job, incarnation, node);
  }
};

struct GangPlan {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::vector<MovedRank> moved;
  std::vector<StayingRank> staying;
  std::vector<GroupTicket> tickets;
  std::uint32_t groups_timeout_ms = 0;  // the limit from the order to join until all groups are made
  std::uint64_t epoch = 0;              // the epoch of the new groups; no other move uses it
  template <class A>
  decltype(auto) fields(A& a) {
    return a(moved, staying, tickets, groups_timeout_ms, epoch);
  }
};
// Decodes a plan. Also refuses numbers beyond the limits above.
Result<GangPlan> decode_gang_plan(std::span<const std::byte> bytes);
// Returns the rank's entry. Returns null if the rank does not move, or does not stay, respectively.
[[nodiscard]] const MovedRank* find_moved(const GangPlan& plan, std::uint32_t rank);
[[nodiscard]] const StayingRank* find_staying(const GangPlan& plan, std::uint32_t rank);

// A query to the node of a rank: which of its groups get new communicators if the given ranks move? The
// answer is RankGroups with the tickets that this rank makes, or a Reply with the reason of the failure.
struct AskGroups {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kAskGroups;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint64_t epoch = 0;
  std::vector<std::uint32_t> moved;
  std::uint32_t timeout_ms = 0;  // the program's time to answer; for 0, the node's own setting
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, epoch, moved, timeout_ms);
  }
};
struct RankGroups {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kRankGroups;
  std::uint64_t request_id = 0;
  bool knows_gang = false;  // whether the program has called ckpt_gang or has named groups
  std::vector<GroupTicket> groups;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, knows_gang, groups);
  }
};

}  // namespace ckpt::gang
