// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <list>

#include "tests/simulators/ncclsim/operation/announce.h"
#include "tests/simulators/ncclsim/operation/batch.h"

namespace ncclsim {
namespace {

// The elements of a reduction that one rank reduces for all ranks.
struct Segment {
  std::size_t begin = 0;
  std::size_t count = 0;
};

Segment segment_of(const Task& task, int owner, int ranks) {
  if (task.kind == Kind::kReduceScatter) return {static_cast<std::size_t>(owner) * task.count, task.count};
  const std::size_t each =
      (task.count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
  const std::size_t begin = std::min(task.count, static_cast<std::size_t>(owner) * each);
  return {begin, std::min(each, task.count - begin)};
}

// Copies nothing if there are no bytes: the pointers may then be null.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class Collective {
 public:
  Collective(Placed* placed, const World& world, std::uint64_t number, const Limits& limits)
      : placed_(*placed),
        task_(placed->task),
        world_(world),
        limits_(limits),
        size_(size_of(placed->task.type)) {
    own_ = announcement_of(task_, number);
    others_.resize(static_cast<std::size_t>(world.ranks));
  }

  ncclResult_t run() {
    if (task_.reduces()) return reduce();
    if (task_.kind == Kind::kBroadcast) return broadcast();
    return gather();
  }

 private:
  // Returns one flow for each peer. Each flow begins with the announcements of both sides.
  std::vector<Flow> announced() {
    std::vector<Flow> flows;
    for (int peer = 0; peer < world_.ranks; peer++) {
      if (peer == world_.rank) continue;
      Announcement* other = &others_[static_cast<std::size_t>(peer)];
      const int rank = world_.rank;
      flows.push_back({peer, {{&own_, sizeof own_}}, {{other, sizeof *other, [this, other, rank, peer] {
                                                         return compare(own_, *other, rank, peer);
                                                       }}}});
    }
    return flows;
  }

  ncclResult_t broadcast() {
    std::vector<Flow> flows = announced();
    for (Flow& flow : flows) {
      if (world_.rank == task_.root) flow.out.push_back({placed_.in, task_.bytes()});
      if (flow.peer == task_.root) flow.in.push_back({placed_.out, task_.bytes(), nullptr});
    }
    if (world_.rank == task_.root) copy_bytes(placed_.out, placed_.in, task_.bytes());
    return world_.mesh->exchange(flows, limits_);
  }

  ncclResult_t gather() {
    std::vector<Flow> flows = announced();
    for (Flow& flow : flows) {
      flow.out.push_back({placed_.in, task_.bytes()});
      flow.in.push_back(
          {placed_.out + static_cast<std::size_t>(flow.peer) * task_.bytes(), task_.bytes(), nullptr});
    }
    copy_bytes(placed_.out + static_cast<std::size_t>(world_.rank) * task_.bytes(), placed_.in,
               task_.bytes());
    return world_.mesh->exchange(flows, limits_);
  }

  // Reduces each rank's segment in the order of ranks. Each rank sends its result to the ranks that need the
  // result.
  ncclResult_t reduce() {
    const std::size_t elements = task_.bytes_in(world_.rank, world_.ranks) / size_;
    scale_input(elements);
    const Segment own = segment_of(task_, world_.rank, world_.ranks);
    std::vector<unsigned char> inputs(own.count * size_ * static_cast<std::size_t>(world_.ranks));
    std::vector<Flow> flows = announced();
    for (Flow& flow : flows) {
      const Segment theirs = segment_of(task_, flow.peer, world_.ranks);
      flow.out.push_back({placed_.in + theirs.begin * size_, theirs.count * size_});
      flow.in.push_back({input_of(&inputs, flow.peer, own), own.count * size_, nullptr});
    }
    copy_bytes(input_of(&inputs, world_.rank, own), placed_.in + own.begin * size_, own.count * size_);
    NCCLSIM_TRY(world_.mesh->exchange(flows, limits_));
    unsigned char* result = input_of(&inputs, 0, own);
    for (int rank = 1; rank < world_.ranks; rank++) {
      combine(task_.reduction.combine, task_.type, result, input_of(&inputs, rank, own), own.count);
    }
    if (task_.reduction.divides) divide(task_.type, result, world_.ranks, own.count);
    return give_result(result, own);
  }

  ncclResult_t give_result(const unsigned char* result, const Segment& own) {
    if (task_.kind == Kind::kReduceScatter) {
      copy_bytes(placed_.out, result, own.count * size_);
      return ncclSuccess;
    }
    std::vector<Flow> flows;
    for (int peer = 0; peer < world_.ranks; peer++) {
      if (peer == world_.rank) continue;
      Flow& flow = flows.emplace_back(Flow{peer, {}, {}});
      const Segment theirs = segment_of(task_, peer, world_.ranks);
      if (wants_result(peer)) flow.out.push_back({result, own.count * size_});
      if (wants_result(world_.rank))
        flow.in.push_back({placed_.out + theirs.begin * size_, theirs.count * size_, nullptr});
    }
    if (wants_result(world_.rank)) copy_bytes(placed_.out + own.begin * size_, result, own.count * size_);
    return world_.mesh->exchange(flows, limits_);
  }

  [[nodiscard]] bool wants_result(int rank) const {
    return task_.kind == Kind::kAllReduce || rank == task_.root;
  }

  [[nodiscard]] unsigned char* input_of(std::vector<unsigned char>* inputs, int rank,
                                        const Segment& own) const {
    return inputs->data() + static_cast<std::size_t>(rank) * own.count * size_;
  }

  void scale_input(std::size_t elements) {
    if (!task_.reduction.scales) return;
    Scalar scalar = task_.reduction.scalar;
    if (placed_.scalar != nullptr) copy_bytes(scalar.bytes, placed_.scalar, size_);
    scale(task_.type, placed_.in, scalar, elements);
  }

  const Placed& placed_;
  const Task& task_;
  const World& world_;
  const Limits& limits_;
  std::size_t size_;
  Announcement own_;
  std::vector<Announcement> others_;
};

// All sends and receives of a batch.
class Messages {
 public:
  Messages(Batch* batch, const World& world, Progress* progress) : world_(world), progress_(progress) {
    flows_.resize(static_cast<std::size_t>(world.ranks));
    for (int peer = 0; peer < world.ranks; peer++) flows_[static_cast<std::size_t>(peer)].peer = peer;
    for (Placed& placed : batch->tasks) {
      if (placed.task.kind == Kind::kSend) add_send(placed);
      if (placed.task.kind == Kind::kReceive) add_receive(placed);
    }
  }

  ncclResult_t run(const Limits& limits) {
    Flow& own = flows_[static_cast<std::size_t>(world_.rank)];
    // Messages to the own rank were matched in order at the end of the group.
    for (std::size_t i = 0; i < own.in.size(); i++)
      copy_bytes(own.in[i].data, own.out[i].data, own.in[i].bytes);
    own = {};
    std::vector<Flow> used;
    for (const Flow& flow : flows_) {
      if (!flow.in.empty() || !flow.out.empty()) used.push_back(flow);
    }
    return world_.mesh->exchange(used, limits);
  }

 private:
  void add_send(const Placed& placed) {
    const auto peer = static_cast<std::size_t>(placed.task.root);
    Flow& flow = flows_[peer];
    if (placed.task.root != world_.rank) {
      const Announcement& own =
          announcements_.emplace_back(announcement_of(placed.task, progress_->sent[peer]++));
      flow.out.push_back({&own, sizeof own});
    }
    flow.out.push_back({placed.in, placed.task.bytes()});
  }

  void add_receive(const Placed& placed) {
    const auto peer = static_cast<std::size_t>(placed.task.root);
    Flow& flow = flows_[peer];
    if (placed.task.root != world_.rank) {
      const Announcement& own =
          announcements_.emplace_back(announcement_to(placed.task, progress_->received[peer]++));
      Announcement* other = &announcements_.emplace_back();
      const int rank = world_.rank;
      flow.in.push_back({other, sizeof *other, [&own, other, rank, peer] {
                           return compare(own, *other, rank, static_cast<int>(peer));
                         }});
    }
    flow.in.push_back({placed.out, placed.task.bytes(), nullptr});
  }

  const World& world_;
  Progress* progress_;
  std::vector<Flow> flows_;
  std::list<Announcement> announcements_;  // a list, since the announcements must not move in memory
};

}  // namespace

ncclResult_t run(Batch* batch, const World& world, Progress* progress, const Limits& limits) {
  bool messages = false;
  for (Placed& placed : batch->tasks) {
    messages = messages || !placed.task.is_collective();
    if (!placed.task.is_collective()) continue;
    NCCLSIM_TRY(Collective(&placed, world, progress->collectives++, limits).run());
  }
  return messages ? Messages(batch, world, progress).run(limits) : ncclSuccess;
}

}  // namespace ncclsim
