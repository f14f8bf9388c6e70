// SPDX-License-Identifier: Apache-2.0
// Tests messages and records of moves of ranks, and the parties of one node.
#include "libckpt/protocol/gang/gang_records.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "libckpt/protocol/gang/gang_parties.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::gang {
namespace {

GangInfo info_of_two() {
  GangInfo info;
  info.migration = 9;
  info.gang = 4;
  info.base = 3;
  info.moved = {2};
  info.staying = {0, 1};
  info.plan = Bytes(2000, std::byte{5});
  return info;
}

// Calls `test` with each body of a gang, with all members set.
template <std::size_t I = 0>
void each_body(const std::function<void(Body)>& test) {
  if constexpr (I < std::variant_size_v<Body>) {
    Body body(std::in_place_index<I>);
    std::visit(
        [](auto& what) {
          if constexpr (requires { what.k; }) what.k = 4;
          if constexpr (requires { what.side; }) what.side = Side::kTarget;
          if constexpr (requires { what.dead; }) what.dead = true;
          if constexpr (requires { what.veto; }) what.veto = true;
          if constexpr (requires { what.reason; }) what.reason = Reason(ErrorCode::kRefused, "why");
          if constexpr (requires { what.payload; }) what.payload = Bytes(7, std::byte{1});
          if constexpr (requires { what.term_ms; }) what.term_ms = 10;
        },
        body);
    if (wire::has_body(wire::CommitKind::kGang, body)) test(std::move(body));
    each_body<I + 1>(test);
  }
}

TEST(GangMessages, EachBodyIsDecodedAsEncoded) {
  each_body([](const Body& body) {
    wire::CommitMessage message(9, 4, 3, Party(Role::kSource, 2), Party(), body);
    message.info = info_of_two();
    const auto read = wire::decode_commit(wire::encode_commit(message));
    ASSERT_TRUE(read.has_value()) << name_of(body);
    EXPECT_EQ(read->body, body) << name_of(body);
    EXPECT_EQ(read->info, message.info);
    EXPECT_EQ(read->from, message.from);
  });
}

TEST(GangMessages, MalformedMessageIsRefused) {
  const auto refused = [](const auto& change) {
    wire::CommitMessage message(9, 4, 3, Party(Role::kSource, 2), Party(), Query{});
    message.info = info_of_two();
    change(message);
    return !wire::decode_commit(wire::encode_commit(message)).has_value();
  };
  EXPECT_FALSE(refused([](wire::CommitMessage&) {}));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.migration = 0; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.to = m.from; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.to.rank = 1; })) << "a coordinator has no rank";
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.body = wire::Commit(4); })) << "of the switch";
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.body = Closed(Side::kInvalid, 1); }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->moved = {2, 2}; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->moved = {}; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->staying = {1, 0}; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->staying = {0, 2}; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->migration = 8; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->gang = 5; }));
  EXPECT_TRUE(refused([](wire::CommitMessage& m) { m.info->base = 4; }));
}

class GangJournalTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gang_journal_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  GangJournal open() { return *GangJournal::open(folder_ + "/journal"); }

  std::string folder_;
};

TEST_F(GangJournalTest, RecordsOfDifferentPartiesOfAMoveAreSeparate) {
  const Record source(info_of_two(), Party(Role::kSource, 2), RecordKind::kBarrier);
  const Record held(info_of_two(), Party(Role::kBystander, 0), RecordKind::kHeld);
  const Record gone(info_of_two(), Party(Role::kBystander, 0), RecordKind::kGone, 4);
  const Record other(info_of_two(), Party(Role::kBystander, 1), RecordKind::kHeld);
  {
    GangJournal journal = open();
    for (const Record& record : {source, held, gone, other})
      ASSERT_TRUE(journal.append(record, GangJournal::Durability::kWritten).has_value());
  }
  GangJournal journal = open();
  EXPECT_EQ(journal.records(), (std::vector<Record>{source, held, gone, other}));
  ASSERT_TRUE(journal.compact([](const Record&) { return false; }).has_value());
  EXPECT_EQ(journal.records(), (std::vector<Record>{source, gone, other}));
}

// A coordinator and agents of 2026-11 wrote this journal. It has a record of each kind, each with its own
// migration and one plan.
TEST_F(GangJournalTest, RecordedJournalIsRead) {
  ASSERT_TRUE(std::filesystem::copy_file(RECORDED "/gang.journal", folder_ + "/journal"));
  GangJournal journal = open();
  const auto& records = journal.records();
  ASSERT_EQ(records.size(), 20U);
  std::set<RecordKind> kinds;
  for (const Record& record : records) {
    kinds.insert(record.kind);
    const auto kind = static_cast<unsigned>(record.kind);
    EXPECT_EQ(record.info.migration, 90U + kind);
    EXPECT_EQ(record.info.gang, 8U);
    EXPECT_EQ(record.info.base, 3U);
    EXPECT_EQ(record.info.moved, (std::vector<std::uint32_t>{1, 2}));
    EXPECT_EQ(record.info.staying, (std::vector<std::uint32_t>{0, 3}));
    EXPECT_FALSE(record.info.overlaps);
    EXPECT_EQ(record.info.communicators_ms, 77);
    EXPECT_EQ(record.k, 4U);
    EXPECT_TRUE(record.owner && record.veto);
    EXPECT_EQ(record.side, record.kind == RecordKind::kClosed ? Side::kTarget : Side::kInvalid);
    EXPECT_EQ(record.reason, Reason(ErrorCode::kTimedOut, "too late"));
    const auto plan = wire::decode_plan(record.info.plan);
    ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
    EXPECT_EQ(plan->options.new_argv.size(), 2U);
  }
  EXPECT_EQ(kinds.size(), 20U);
}

TEST_F(GangJournalTest, RecordsOfAnotherPartyAreRefused) {
  const auto read = [](const Record& record) {
    return GangRecords::decode(wire::encode(record)).has_value();
  };
  EXPECT_TRUE(read(Record(info_of_two(), Party(Role::kTarget, 2), RecordKind::kReady, 4)));
  EXPECT_FALSE(read(Record(info_of_two(), Party(Role::kSource, 2), RecordKind::kReady, 4)));
  EXPECT_FALSE(read(Record(info_of_two(), Party(), RecordKind::kClosed, 4))) << "for no side";
  EXPECT_FALSE(read(Record(GangInfo(), Party(), RecordKind::kBegun)));
}

class GangPartiesTest : public testing::Test {
 protected:
  static wire::CommitMessage to_source(Body body, bool with_info) {
    wire::CommitMessage message(9, 4, 3, Party(), Party(Role::kSource, 2), body);
    if (with_info) message.info = info_of_two();
    return message;
  }
  template <class What>
  static bool has(const std::vector<Batch>& batches) {
    for (const Batch& batch : batches)
      for (const Action& action : batch.actions)
        if (std::holds_alternative<What>(action)) return true;
    return false;
  }
  static std::optional<Record> recorded(const std::vector<Batch>& batches) {
    for (const Batch& batch : batches)
      for (const Action& action : batch.actions)
        if (const auto* write = std::get_if<WriteRecord>(&action)) return write->record;
    return std::nullopt;
  }
  bool may_run_freely() const {
    return parties_.may_run_freely(4, 2, [](const PartyKey&) { return true; });
  }
  GangParties parties_{Timing()};
};

TEST_F(GangPartiesTest, PrepareCreatesAParty) {
  const auto made = *parties_.on_message(to_source(Prepare{}, true), 1);
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(has<PrepareSource>(*made));
  EXPECT_TRUE(parties_.is_open(4, 2));
  EXPECT_TRUE(may_run_freely()) << "nothing is recorded";
}

TEST_F(GangPartiesTest, MessageOfAnUnknownMoveIsIgnored) {
  EXPECT_FALSE(parties_.on_message(to_source(Granted(4), false), 1)->has_value());
}

TEST_F(GangPartiesTest, PartyWithoutRecordsIsClosedOnceTheMoveIsDescribed) {
  const auto told = *parties_.on_message(to_source(Query{}, true), 1);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(recorded(*told)->kind, RecordKind::kNever);
  EXPECT_FALSE(parties_.is_open(4, 2));
}

TEST_F(GangPartiesTest, MessageOfAnotherJobOrBaseIsRefused) {
  ASSERT_TRUE(parties_.on_message(to_source(Prepare{}, true), 1).has_value());
  wire::CommitMessage message = to_source(Query{}, false);
  EXPECT_TRUE(parties_.on_message(message, 1).has_value());
  message.base = 2;
  EXPECT_FALSE(parties_.on_message(message, 1).has_value());
  message.base = 3;
  message.job = 5;
  EXPECT_FALSE(parties_.on_message(message, 1).has_value());
}

TEST_F(GangPartiesTest, RankThatIsNotInTheMoveIsRefused) {
  wire::CommitMessage message(9, 4, 3, Party(), Party(Role::kSource, 0), Prepare{});
  message.info = info_of_two();
  EXPECT_FALSE(parties_.on_message(message, 1).has_value());
}

TEST_F(GangPartiesTest, OnlyTheNewestMoveOfARankAppliesAfterARestart) {
  GangInfo later = info_of_two();
  later.migration = 12;
  later.moved = {1};
  later.staying = {0, 2};
  const std::vector<Record> records = {
      Record(info_of_two(), Party(Role::kSource, 2), RecordKind::kResumed, 3),
      Record(later, Party(Role::kBystander, 2), RecordKind::kHeld)};
  const auto woken = *parties_.restore(records, 1);
  EXPECT_FALSE(has<ResumeRank>(woken)) << "the rank stands for the later move";
  EXPECT_FALSE(may_run_freely());
  parties_.forget([](const GangInfo& info) { return info.migration == 12; });
  EXPECT_TRUE(may_run_freely());
}

TEST_F(GangPartiesTest, MoveBeforeARestoreOfARankDoesNotHoldTheRank) {
  const std::vector<Record> records = {
      Record(info_of_two(), Party(Role::kBystander, 0), RecordKind::kGone, 4)};
  ASSERT_TRUE(parties_.restore(records, 1).has_value());
  const auto may_run = [this](bool is_of) {
    return parties_.may_run_freely(4, 0, [is_of](const PartyKey&) { return is_of; });
  };
  EXPECT_FALSE(may_run(true)) << "it goes on with its new communicators, by that party";
  EXPECT_TRUE(may_run(false));
}

TEST_F(GangPartiesTest, FailedRecordIsRolledBack) {
  (void)*parties_.on_message(to_source(Prepare{}, true), 1);
  const PartyKey key(9, Party(Role::kSource, 2));
  const auto left = parties_.on_event(key, SourceEvent(SourceRefused(Reason(ErrorCode::kRefused, "no"))), 1);
  EXPECT_EQ(recorded(*left)->kind, RecordKind::kNever);
  const auto again = *parties_.record_failed(key, Reason(ErrorCode::kRefused, "disk full"), 1);
  EXPECT_FALSE(recorded(again).has_value());
  const auto later = *parties_.on_event(key, SourceEvent(TimerFired(Timer::kPoll)), 1);
  EXPECT_EQ(recorded(later)->kind, RecordKind::kNever);
}

}  // namespace
}  // namespace ckpt::gang
