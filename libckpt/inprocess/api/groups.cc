// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/groups.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ckpt::job {
namespace {

constexpr std::chrono::milliseconds kPollAgain{1};

std::uint32_t number_of(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

const char* name_of(ckpt_status status) {
  switch (status) {
    case CKPT_ERROR_INVALID:
      return "CKPT_ERROR_INVALID";
    case CKPT_ERROR_CUDA:
      return "CKPT_ERROR_CUDA";
    case CKPT_ERROR_MEMORY:
      return "CKPT_ERROR_MEMORY";
    case CKPT_ERROR_CONNECTION:
      return "CKPT_ERROR_CONNECTION";
    case CKPT_ERROR_MISMATCH:
      return "CKPT_ERROR_MISMATCH";
    case CKPT_ERROR_LIMIT:
      return "CKPT_ERROR_LIMIT";
    default:
      return "a status that is not one of the error codes of ckpt.h";
  }
}

Error failure(const char* call, const std::string& group, ckpt_status status) {
  return Error(ErrorCode::kAborted, "Group '" + group + "': its callback " + call + " returned " +
                                        name_of(status) + " (" + std::to_string(static_cast<int>(status)) +
                                        "); see the log of the rank for details");
}

std::span<const local::GroupRecord> records_of(const local::JoinGroups& order) {
  return order.records;
}

}  // namespace

Groups::Groups(Answer answer) : answer_(std::move(answer)) {
  const std::uint32_t ranks = number_of("WORLD_SIZE", 1);
  const std::uint32_t rank = number_of("RANK", 0);
  if (rank < ranks && ranks <= local::kMaxRanks) {
    rank_ = rank;
    ranks_ = ranks;
  }
}

Groups::~Groups() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    is_given_up_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Groups::know_gang() {
  const std::lock_guard lock(mutex_);
  knows_gang_ = true;
}

Result<void> Groups::add(std::string name, std::vector<std::uint32_t> members, const ckpt_group_ops& ops,
                         void* user) {
  std::sort(members.begin(), members.end());
  const bool is_own = std::binary_search(members.begin(), members.end(), rank_);
  const bool is_twice = std::adjacent_find(members.begin(), members.end()) != members.end();
  if (!is_own || is_twice || members.back() >= ranks_)
    return Error(ErrorCode::kInvalidArgument,
                 "Group '" + name +
                     "': its members must be different ranks of the job, and this rank must be one of them");
  if (ops.begin == nullptr)
    return Error(ErrorCode::kInvalidArgument, "Group '" + name + "' needs the callback begin");
  const std::lock_guard lock(mutex_);
  if (groups_.size() >= CKPT_MAX_GROUPS)
    return Error(ErrorCode::kRefused, "A rank has at most " + std::to_string(CKPT_MAX_GROUPS) + " groups");
  Group group{name, std::move(members), ops, user};
  if (!groups_.emplace(std::move(name), std::move(group)).second)
    return Error(ErrorCode::kInvalidArgument, "A group of that name exists already");
  knows_gang_ = true;
  return ok();
}

// Answers a query, and discards groups of earlier epochs. A move begins once the previous move has ended on
// all nodes. If an agent exited while groups were made for the previous move, this process was not notified.
void Groups::ask(std::uint64_t request, const local::AskGroups& order) {
  discard_those([now = order.epoch](std::uint64_t epoch) { return epoch != 0 && epoch < now; });
  Ask ask{request, order.epoch, {}};
  for (std::size_t rank = 0; rank < local::kMaxRanks; ++rank)
    ask.moved[rank] = (order.moved[rank / 64] >> (rank % 64) & 1) != 0;
  give(ask);
}

void Groups::join(std::uint64_t request, local::JoinGroups order) {
  give(Join{request, std::move(order)});
}

void Groups::discard(std::uint64_t epoch) {
  discard_those([epoch](std::uint64_t known) { return known == epoch; });
}

void Groups::discard_those(const std::function<bool(std::uint64_t)>& which) {
  std::unique_lock lock(mutex_);
  if (which(joining_)) is_given_up_ = true;
  std::erase_if(orders_, [&which](const Order& order) {
    const auto* join = std::get_if<Join>(&order);
    return join != nullptr && which(join->order.sequence);
  });
  const std::uint64_t epoch = joined_;
  const bool is_made = which(epoch);
  std::vector<const Group*> made;
  if (is_made) {
    joined_ = 0;
    made = std::exchange(joined_groups_, {});
  }
  lock.unlock();
  changed_.notify_all();
  if (is_made) give(Discard{epoch, std::move(made)});
}

Result<void> Groups::swap(std::uint64_t epoch) {
  std::vector<const Group*> made;
  {
    const std::lock_guard lock(mutex_);
    if (joined_ != epoch || epoch == 0) return ok();
    joined_ = 0;
    made = std::exchange(joined_groups_, {});
  }
  for (const Group* group : made) {
    const ckpt_status done = group->ops.swap == nullptr ? CKPT_OK : group->ops.swap(group->user, epoch);
    if (done != CKPT_OK) return failure("swap", group->name, done);
  }
  give(Discard{epoch, std::move(made)});  // discards the groups that were in use before
  return ok();
}

void Groups::give(Order order) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(std::move(order));
  changed_.notify_all();
  if (thread_.joinable()) return;
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &former);
  thread_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "ckpt-groups");
}

void Groups::serve() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ends_ || !orders_.empty(); });
    if (ends_) return;
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    if (const auto* join = std::get_if<Join>(&order)) {
      joining_ = join->order.sequence;
      is_given_up_ = false;
    }
    lock.unlock();
    std::visit([this](const auto& what) { carry_out(what); }, order);
  }
}

std::vector<const Groups::Group*> Groups::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Group*> all;
  for (const auto& [name, group] : groups_) all.push_back(&group);
  return all;
}

// Describes the groups. The first member that stays creates the ticket. If all members move, the first member
// creates it. That member's process exists until the new communicators are in use.
Result<std::vector<local::GroupRecord>> Groups::describe(const Ask& ask) const {
  std::vector<local::GroupRecord> records;
  for (const Group* group : snapshot()) {
    const auto& members = group->members;
    const auto moves = [&](std::uint32_t member) { return ask.moved[member]; };
    if (std::none_of(members.begin(), members.end(), moves)) continue;
    local::GroupRecord& record = records.emplace_back();
    record.name.assign(group->name);
    const auto stays = std::find_if_not(members.begin(), members.end(), moves);
    const std::uint32_t maker = stays == members.end() ? members.front() : *stays;
    if (maker != rank_ || group->ops.ticket == nullptr) continue;
    std::size_t bytes = record.ticket.size();
    const ckpt_status made = group->ops.ticket(group->user, ask.epoch, record.ticket.data(), &bytes);
    if (made != CKPT_OK || bytes == 0 || bytes > record.ticket.size())
      return failure("ticket", group->name, made);
    record.bytes = static_cast<std::uint32_t>(bytes);
  }
  return records;
}

void Groups::carry_out(const Ask& ask) {
  auto records = describe(ask);
  if (!records) return answer_(ask.request, to_failed(local::MessageType::kAskGroups, records.error()));
  if (!records->empty()) answer_(ask.request, local::Groups{*std::move(records)});
  bool knows_gang = false;
  {
    const std::lock_guard lock(mutex_);
    knows_gang = knows_gang_;
  }
  answer_(ask.request, local::GroupsEnd{knows_gang ? 1U : 0U, 0});
}

Result<void> Groups::make(const Join& join, std::vector<const Group*>& begun) {
  const std::uint64_t epoch = join.order.sequence;
  for (const Group* group : snapshot()) {
    const auto records = records_of(join.order);
    const auto record =
        std::find_if(records.begin(), records.end(),
                     [group](const local::GroupRecord& known) { return known.name.view() == group->name; });
    if (record == records.end()) continue;
    begun.push_back(group);
    const ckpt_status done = group->ops.begin(group->user, epoch, record->ticket.data(), record->bytes);
    if (done != CKPT_OK) return failure("begin", group->name, done);
  }
  CKPT_TRYV(wait_for(begun, epoch));
  for (const Group* group : begun) {
    if (group->ops.rehearse == nullptr) continue;
    const ckpt_status done = group->ops.rehearse(group->user, epoch);
    if (done != CKPT_OK) return failure("rehearse", group->name, done);
  }
  return wait_for(begun, epoch);
}

Result<void> Groups::wait_for(const std::vector<const Group*>& groups, std::uint64_t epoch) {
  for (const Group* group : groups) {
    while (group->ops.poll != nullptr) {
      const ckpt_status state = group->ops.poll(group->user, epoch);
      if (state == CKPT_OK) break;
      if (state != CKPT_BUSY) return failure("poll", group->name, state);
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kPollAgain, [this] { return is_given_up_; }))
        return Error(ErrorCode::kAborted, "The creation of the new communicators was cancelled");
    }
  }
  return ok();
}

void Groups::carry_out(const Join& join) {
  std::vector<const Group*> begun;
  Result<void> made = make(join, begun);
  bool is_given_up = false;
  {
    const std::lock_guard lock(mutex_);
    joining_ = 0;
    is_given_up = is_given_up_;
    if (made && !is_given_up) {
      joined_ = join.order.sequence;
      joined_groups_ = begun;
    }
  }
  if (made && !is_given_up) return answer_(join.request, local::GroupsJoined{join.order.sequence});
  carry_out(Discard{join.order.sequence, std::move(begun)});
  if (!made) answer_(join.request, to_failed(local::MessageType::kJoinGroups, made.error()));
}

void Groups::carry_out(const Discard& discard) {
  for (const Group* group : discard.groups)
    if (group->ops.discard != nullptr) group->ops.discard(group->user, discard.epoch);
}

}  // namespace ckpt::job
