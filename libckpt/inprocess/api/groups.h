// SPDX-License-Identifier: Apache-2.0
// The groups in which a rank communicates, behind ckpt_group_callbacks. New communicators are made on a
// separate thread while the program computes. swap() puts the communicators into use, on the program's
// thread.
//
//   ask() -> the groups that a moved rank belongs to, with the tickets that this rank makes; what is made for epochs before
//            is given up
//   join() -> begin, poll until done, rehearse, poll until done -> GroupsJoined; then swap() or discard()
//
// Threads: the program's thread calls add() and swap(), and the session's service thread the other functions.
// There is one mutex. Callbacks run without it. The separate thread is started with the first order and
// blocks all signals. Ownership: callbacks and `user` belong to the program. Errors: answered as Failed;
// swap() returns them.
#pragma once

#include <bitset>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::job {

class Groups {
 public:
  using Answer = std::function<void(std::uint64_t request, local::Body)>;
  explicit Groups(Answer answer);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  void know_gang();
  Result<void> add(std::string name, std::vector<std::uint32_t> members, const ckpt_group_ops& ops,
                   void* user);

  void ask(std::uint64_t request, const local::AskGroups& order);
  void join(std::uint64_t request, local::JoinGroups order);
  void discard(std::uint64_t epoch);
  // Puts the groups of the epoch into use. Does nothing if no groups were made for it.
  Result<void> swap(std::uint64_t epoch);

 private:
  using Ranks = std::bitset<local::kMaxRanks>;
  struct Group {
    std::string name;
    std::vector<std::uint32_t> members;  // the members, in ascending order
    ckpt_group_ops ops{};
    void* user = nullptr;
  };
  struct Ask {
    std::uint64_t request = 0;
    std::uint64_t epoch = 0;
    Ranks moved;
  };
  struct Join {
    std::uint64_t request = 0;
    local::JoinGroups order;
  };
  struct Discard {
    std::uint64_t epoch = 0;
    std::vector<const Group*> groups;
  };
  using Order = std::variant<Ask, Join, Discard>;

  // Abandons unfinished joins of the matching epochs, and discards their communicators that are not in use.
  void discard_those(const std::function<bool(std::uint64_t epoch)>& which);
  void give(Order order);
  void serve();
  void carry_out(const Ask& ask);
  void carry_out(const Join& join);
  void carry_out(const Discard& discard);
  Result<void> make(const Join& join, std::vector<const Group*>& begun);
  // Waits until all groups are done, or the epoch is abandoned.
  Result<void> wait_for(const std::vector<const Group*>& groups, std::uint64_t epoch);
  Result<std::vector<local::GroupRecord>> describe(const Ask& ask) const;
  [[nodiscard]] std::vector<const Group*> snapshot() const;

  const Answer answer_;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool knows_gang_ = false;
  std::map<std::string, Group> groups_;  // the groups by their name; entries are never removed
  std::deque<Order> orders_;
  std::uint64_t joining_ = 0;                // the epoch whose groups are being made
  bool is_given_up_ = false;                 // whether the epoch `joining_` was abandoned
  std::uint64_t joined_ = 0;                 // the epoch whose groups are made and not in use yet
  std::vector<const Group*> joined_groups_;  // the groups of epoch `joined_`
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ckpt::job
