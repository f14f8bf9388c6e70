// SPDX-License-Identifier: Apache-2.0
// Tests of groups with callbacks that only count.
#include "libckpt/inprocess/api/groups.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace ckpt::job {
namespace {

constexpr std::chrono::seconds kLimit{60};

// The callbacks of one group: they count their calls and return preset answers.
struct Fake {
  std::atomic<int> begun{0};
  std::atomic<int> rehearsed{0};
  std::atomic<int> swapped{0};
  std::atomic<int> discarded{0};
  std::atomic<bool> is_busy{false};
  std::atomic<bool> fails{false};
  std::string ticket;  // the ticket that begin() received

  static Fake& of(void* user) { return *static_cast<Fake*>(user); }
  static ckpt_status make_ticket(void*, uint64_t epoch, void* ticket, size_t* bytes) {
    std::memcpy(ticket, &epoch, sizeof epoch);
    *bytes = sizeof epoch;
    return CKPT_OK;
  }
  static ckpt_status begin(void* user, uint64_t, const void* ticket, size_t bytes) {
    of(user).ticket.assign(static_cast<const char*>(ticket), bytes);
    of(user).begun++;
    return CKPT_OK;
  }
  static ckpt_status poll(void* user, uint64_t) {
    if (of(user).fails) return CKPT_ERROR_CUDA;
    return of(user).is_busy ? CKPT_BUSY : CKPT_OK;
  }
  static ckpt_status rehearse(void* user, uint64_t) {
    of(user).rehearsed++;
    return CKPT_OK;
  }
  static ckpt_status swap(void* user, uint64_t) {
    of(user).swapped++;
    return CKPT_OK;
  }
  static void discard(void* user, uint64_t) { of(user).discarded++; }
  static constexpr ckpt_group_ops kOps = {make_ticket, begin, poll, rehearse, swap, discard};
};

class GroupsTest : public testing::Test {
 protected:
  GroupsTest() {
    ::setenv("RANK", "1", 1);
    ::setenv("WORLD_SIZE", "4", 1);
    groups_.emplace([this](std::uint64_t, local::Body body) {
      const std::lock_guard lock(mutex_);
      answers_.push_back(std::move(body));
      arrived_.notify_all();
    });
  }
  ~GroupsTest() override {
    groups_.reset();
    ::unsetenv("RANK");
    ::unsetenv("WORLD_SIZE");
  }

  void add(const std::string& name, std::vector<std::uint32_t> members) {
    ASSERT_TRUE(groups_->add(name, std::move(members), Fake::kOps, &fake_).has_value());
  }
  // Returns the next answer, which must be a T.
  template <class T>
  T next() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(arrived_.wait_for(lock, kLimit, [this] { return !answers_.empty(); })) << "no answer came";
    if (answers_.empty()) return {};
    local::Body body = std::move(answers_.front());
    answers_.pop_front();
    const T* wanted = std::get_if<T>(&body);
    EXPECT_NE(wanted, nullptr) << to_string(type_of(body));
    return wanted == nullptr ? T{} : *wanted;
  }
  template <class Test>
  void wait_until(Test test, const char* what) {
    const auto until = std::chrono::steady_clock::now() + kLimit;
    while (!test() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_TRUE(test()) << what;
  }
  static local::JoinGroups join_of(std::uint64_t epoch, const std::string& name) {
    local::JoinGroups join{epoch, {}};
    local::GroupRecord& record = join.records.emplace_back();
    record.name.assign(name);
    record.bytes = 3;
    std::memcpy(record.ticket.data(), "abc", 3);
    return join;
  }
  static local::AskGroups ask_of(std::uint64_t epoch, std::uint64_t moved) {
    local::AskGroups ask{epoch, {}};
    ask.moved[0] = moved;
    return ask;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<local::Body> answers_;
  Fake fake_;
  std::optional<Groups> groups_;
};

TEST_F(GroupsTest, FirstRemainingMemberCreatesTheTicketOfAffectedGroups) {
  add("all", {0, 1, 2, 3});
  add("low", {0, 1});
  add("pair", {1, 3});
  groups_->ask(1, ask_of(7, 0b1000));  // rank 3 moves
  const auto records = next<local::Groups>().records;
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name.view(), "all");
  EXPECT_EQ(records[0].bytes, 0u) << "rank 0 makes it";
  EXPECT_EQ(records[1].name.view(), "pair");
  EXPECT_EQ(records[1].bytes, sizeof(std::uint64_t));
  EXPECT_EQ(next<local::GroupsEnd>().knows_gang, 1u);
  groups_->ask(2, ask_of(8, 0b1010));  // ranks 1 and 3: all ranks of "pair"
  EXPECT_EQ(next<local::Groups>().records.size(), 3u);
  next<local::GroupsEnd>();
}

TEST_F(GroupsTest, NewGroupsAreCreatedRehearsedAndPutIntoUse) {
  add("all", {0, 1, 2, 3});
  groups_->join(1, join_of(7, "all"));
  EXPECT_EQ(next<local::GroupsJoined>().epoch, 7u);
  EXPECT_EQ(fake_.ticket, "abc");
  EXPECT_EQ(fake_.rehearsed, 1);
  EXPECT_EQ(fake_.swapped, 0);
  ASSERT_TRUE(groups_->swap(7).has_value());
  EXPECT_EQ(fake_.swapped, 1);
  wait_until([&] { return fake_.discarded == 1; }, "the old one is ended");
  ASSERT_TRUE(groups_->swap(7).has_value()) << "once more, by an agent that was restarted";
  EXPECT_EQ(fake_.swapped, 1);
}

TEST_F(GroupsTest, AbandonedNewGroupsAreDestroyed) {
  add("all", {0, 1, 2, 3});
  fake_.is_busy = true;
  groups_->join(1, join_of(7, "all"));
  wait_until([&] { return fake_.begun == 1; }, "it has begun");
  groups_->discard(7);
  EXPECT_EQ(next<local::Failed>().refused_type, static_cast<std::uint32_t>(local::MessageType::kJoinGroups));
  EXPECT_EQ(fake_.discarded, 1);
  fake_.is_busy = false;
  groups_->join(2, join_of(8, "all"));
  next<local::GroupsJoined>();
  groups_->discard(8);
  wait_until([&] { return fake_.discarded == 2; }, "the one that was made is ended");
  ASSERT_TRUE(groups_->swap(8).has_value());
  EXPECT_EQ(fake_.swapped, 0) << "there is nothing to put into use";
}

TEST_F(GroupsTest, QueryOfALaterMoveAbandonsGroupsOfAnEarlierMove) {
  add("all", {0, 1, 2, 3});
  fake_.is_busy = true;
  groups_->join(1, join_of(7, "all"));
  wait_until([&] { return fake_.begun == 1; }, "it has begun");
  local::AskGroups later;
  later.epoch = 8;
  groups_->ask(2, later);
  EXPECT_EQ(next<local::Failed>().refused_type, static_cast<std::uint32_t>(local::MessageType::kJoinGroups));
  EXPECT_EQ(next<local::GroupsEnd>().knows_gang, 1u);
  EXPECT_EQ(fake_.discarded, 1);
}

TEST_F(GroupsTest, FailureReportsItsGroupAndCallback) {
  add("all", {0, 1, 2, 3});
  fake_.fails = true;
  groups_->join(1, join_of(7, "all"));
  const std::string reason = next<local::Failed>().text.str();
  EXPECT_NE(reason.find("'all'"), std::string::npos) << reason;
  EXPECT_NE(reason.find("poll"), std::string::npos) << reason;
  EXPECT_EQ(fake_.discarded, 1);
}

TEST_F(GroupsTest, GroupsOfOtherRanksAndDuplicateNamesAreRefused) {
  add("all", {3, 1, 2, 0});
  EXPECT_FALSE(groups_->add("all", {0, 1}, Fake::kOps, nullptr).has_value());
  EXPECT_FALSE(groups_->add("others", {0, 2}, Fake::kOps, nullptr).has_value());
  EXPECT_FALSE(groups_->add("far", {1, 4}, Fake::kOps, nullptr).has_value());
  EXPECT_FALSE(groups_->add("twice", {1, 1}, Fake::kOps, nullptr).has_value());
  EXPECT_FALSE(groups_->add("idle", {1}, ckpt_group_ops{}, nullptr).has_value());
}

TEST_F(GroupsTest, ProgramWithoutGroupsIsDistinguishedFromAProgramUnawareOfGangs) {
  groups_->ask(1, ask_of(7, 1));
  EXPECT_EQ(next<local::GroupsEnd>().knows_gang, 0u);
  groups_->know_gang();
  groups_->ask(2, ask_of(8, 1));
  EXPECT_EQ(next<local::GroupsEnd>().knows_gang, 1u);
}

}  // namespace
}  // namespace ckpt::job
