// SPDX-License-Identifier: Apache-2.0
// Splits and shrinks. The participating ranks send each other their future listening addresses, over the
// parent's control connections.
#include <algorithm>
#include <cstring>

#include "tests/simulators/ncclsim/comm/group.h"
#include "tests/simulators/ncclsim/comm/init.h"

namespace ncclsim {
namespace {

// The proposal of a rank to the other ranks, in its wire format.
struct Proposal {
  std::uint64_t number = 0;  // number of the parent's exchange
  std::uint32_t shrinks = 0;
  std::uint32_t excluded_hash = 0;
  std::int32_t color = 0;
  std::int32_t key = 0;
  RankInfo info;
};

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

std::uint32_t hash_of(const std::vector<int>& ranks) {
  std::uint64_t value = 1;
  for (const int rank : ranks) value = mix(value + static_cast<std::uint64_t>(rank) + 1);
  return static_cast<std::uint32_t>(value);
}

ncclResult_t check(const Proposal& own, const Proposal& other, int peer) {
  NCCLSIM_CHECK(
      other.number == own.number && other.shrinks == own.shrinks && other.excluded_hash == own.excluded_hash,
      ncclInvalidUsage, "rank %d splits or shrinks the communicator in another way than this rank", peer);
  NCCLSIM_CHECK(other.info.rank == peer, ncclInternalError, "rank %d sends another rank's proposal", peer);
  return ncclSuccess;
}

// Exchanges the proposals of the participating ranks. The proposals of other ranks stay empty.
ncclResult_t exchange(Communicator* parent, const Proposal& own, const std::vector<int>& excluded,
                      const Limits& limits, std::vector<Proposal>* all) {
  all->resize(static_cast<std::size_t>(parent->ranks));
  std::vector<Flow> flows;
  for (int peer = 0; peer < parent->ranks; peer++) {
    if (peer == parent->rank || std::find(excluded.begin(), excluded.end(), peer) != excluded.end()) continue;
    Proposal* other = &(*all)[static_cast<std::size_t>(peer)];
    flows.push_back({peer, {{&own, sizeof own}}, {{other, sizeof *other, [&own, other, peer] {
                                                     return check(own, *other, peer);
                                                   }}}});
  }
  (*all)[static_cast<std::size_t>(parent->rank)] = own;
  return parent->control.exchange(flows, limits);
}

// Returns the members of the child, in the order of its ranks, by their ranks in the parent.
std::vector<int> members_of(const std::vector<Proposal>& all, const ChildRequest& request) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < all.size(); rank++) {
    const bool excluded = std::find(request.excluded.begin(), request.excluded.end(),
                                    static_cast<int>(rank)) != request.excluded.end();
    if (!excluded && all[rank].color == request.color) members.push_back(static_cast<int>(rank));
  }
  std::stable_sort(members.begin(), members.end(), [&all](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  return members;
}

ncclResult_t make_child(Communicator* parent, Communicator* child, const ChildRequest& request) {
  if (child != nullptr) NCCLSIM_TRY(wait_as_ordered(*child, parent->aborted));
  const Limits limits = limits_of(*parent);
  Proposal own;
  own.number = parent->control_number++;
  own.shrinks = request.shrinks ? 1 : 0;
  own.excluded_hash = hash_of(request.excluded);
  own.color = request.color;
  own.key = request.key;
  if (child != nullptr) NCCLSIM_TRY(listen_for_peers(child, &own.info));
  own.info.rank = parent->rank;
  std::vector<Proposal> all;
  NCCLSIM_TRY(exchange(parent, own, request.excluded, limits, &all));
  if (child == nullptr) return ncclSuccess;
  const std::vector<int> members = members_of(all, request);
  child->ranks = static_cast<int>(members.size());
  child->secret =
      mix(parent->secret + mix(own.number + 1) + mix(static_cast<std::uint64_t>(request.color) + 0x10000));
  for (int rank = 0; rank < child->ranks; rank++) {
    RankInfo info = all[static_cast<std::size_t>(members[static_cast<std::size_t>(rank)])].info;
    if (info.rank == parent->rank) child->rank = rank;
    info.rank = rank;
    info.ranks = child->ranks;
    child->table.push_back(info);
  }
  return complete(child, limits);
}

}  // namespace

ncclResult_t begin_child(Communicator* parent, const ChildRequest& request, ncclComm_t* out,
                         const ncclConfig_t* config) {
  NCCLSIM_CHECK(out != nullptr, ncclInvalidArgument, "newcomm argument is NULL");
  *out = nullptr;
  NCCLSIM_TRY(parent->ensure_ready());
  NCCLSIM_CHECK(!parent->finalized, ncclInvalidArgument, "the communicator has been finalized");
  Communicator* child = nullptr;
  if (request.color != NCCL_SPLIT_NOCOLOR) {
    Config read = parent->config;
    NCCLSIM_TRY(read_config(config, &read));
    child = new Communicator(parent->context, parent->device);
    child->config = read;
    child->rank = parent->rank;  // used for faults until the child's own rank is known
  }
  // The parent is busy with the job; the program receives the child once the child is complete.
  Group::current().add_job(
      {parent, child, out, [parent, child, request] { return make_child(parent, child, request); }});
  return ncclSuccess;
}

}  // namespace ncclsim
