// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/operation/announce.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ncclsim {
namespace {

constexpr std::uint32_t kTag = 0x4c4c4f43;

std::string to_text(const Announcement& said) {
  if (said.tag != kTag || said.kind >= kKinds || said.type >= ncclNumTypes)
    return "sends what is no operation";
  return std::string("does ") + name_of(static_cast<Kind>(said.kind)) + " number " +
         std::to_string(said.number) + " of " + std::to_string(said.count) + " " +
         name_of(static_cast<ncclDataType_t>(said.type)) + ", operator " + std::to_string(said.operation) +
         ", root " + std::to_string(said.root);
}

}  // namespace

Announcement announcement_of(const Task& task, std::uint64_t number) {
  Announcement said;
  said.tag = kTag;
  said.kind = static_cast<std::uint32_t>(task.kind);
  said.number = number;
  said.count = task.count;
  said.type = static_cast<std::uint32_t>(task.type);
  // The program's operators have different numbers on each rank.
  said.operation = task.reduces() ? static_cast<std::uint32_t>(std::min<int>(task.operation, ncclNumOps)) : 0;
  const bool has_root = task.kind == Kind::kReduce || task.kind == Kind::kBroadcast;
  said.root = has_root ? task.root : 0;
  return said;
}

Announcement announcement_to(const Task& receive, std::uint64_t number) {
  Announcement said = announcement_of(receive, number);
  said.kind = static_cast<std::uint32_t>(Kind::kSend);
  return said;
}

ncclResult_t compare(const Announcement& own, const Announcement& other, int rank, int peer) {
  if (std::memcmp(&own, &other, sizeof own) == 0) return ncclSuccess;
  return fail(ncclInvalidUsage, "the ranks' operations differ: rank %d %s; rank %d %s", rank,
              to_text(own).c_str(), peer, to_text(other).c_str());
}

}  // namespace ncclsim
