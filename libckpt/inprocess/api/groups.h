// SPDX-License-Identifier: Apache-2.0
// The groups that a rank communicates in, behind ckpt_group_callbacks. New communicators are made on a thread of its own,
// while the program computes. swap() puts them into use, on the program's thread.
//
//   ask() -> the groups that a moved rank belongs to, with the tickets that this rank makes; what is made for epochs before
//            is given up
//   join() -> begin, poll until done, rehearse, poll until done -> GroupsJoined; then swap() or discard()
//
// Threads: add() and swap() on the program's, the others on the session's service thread; one mutex. Callbacks run
// without it. The own thread is started with the first order and blocks all signals. Ownership: callbacks and `user` are
// the program's. Errors: answered as Failed; swap() returns them.
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
  // Nothing to do where no groups were made for that epoch.
  Result<void> swap(std::uint64_t epoch);

 private:
  using Ranks = std::bitset<local::kMaxRanks>;
  struct Group {
    std::string name;
    std::vector<std::uint32_t> members;  // ascending
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

  // Gives up the unfinished joins of such epochs, and discards their communicators that are not in use.
  void discard_those(const std::function<bool(std::uint64_t epoch)>& which);
  void give(Order order);
  void serve();
  void carry_out(const Ask& ask);
  void carry_out(const Join& join);
  void carry_out(const Discard& discard);
  Result<void> make(const Join& join, std::vector<const Group*>& begun);
  // Until all of them are done, or the epoch is given up.
  Result<void> wait_for(const std::vector<const Group*>& groups, std::uint64_t epoch);
  Result<std::vector<local::GroupRecord>> describe(const Ask& ask) const;
  [[nodiscard]] std::vector<const Group*> snapshot() const;

  const Answer answer_;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool knows_gang_ = false;
  std::map<std::string, Group> groups_;  // never removed
  std::deque<Order> orders_;
  std::uint64_t joining_ = 0;                // the epoch that is being made
  bool is_given_up_ = false;                 // that one
  std::uint64_t joined_ = 0;                 // made, and not in use yet
  std::vector<const Group*> joined_groups_;  // its groups
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ckpt::job
