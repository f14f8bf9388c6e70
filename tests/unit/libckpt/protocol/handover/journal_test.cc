// SPDX-License-Identifier: Apache-2.0
// Tests the journal with torn tails, damage and full disks.
#include "libckpt/protocol/handover/journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "libckpt/protocol/wire/migration_messages.h"

namespace {
int syncs = 0;
}  // namespace

// Replaces the C library's function, and counts the calls.
extern "C" int fdatasync(int fd) {
  ++syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace ckpt::migration {
namespace {

Record make(MigrationId id, RecordKind kind, Incarnation k = 0) {
  return {HandoverInfo(id, 7, 1, {RankPlace(0, "a", "0", "b", "1")}, Bytes(100, std::byte{3})), Role::kSource,
          kind, k};
}

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ckpt_journal_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/journal";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write_three() {
    auto journal = Journal::open(path_);
    ASSERT_TRUE(journal.has_value());
    for (const auto& r :
         {make(1, RecordKind::kBarrier), make(1, RecordKind::kReleased), make(2, RecordKind::kBarrier)})
      ASSERT_TRUE(journal->append(r).has_value());
    end_ = journal->size_bytes();
  }
  void flip(std::uint64_t at) {
    UniqueFd fd(::open(path_.c_str(), O_RDWR));
    char byte = 0;
    ASSERT_EQ(::pread(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
    byte = static_cast<char>(byte ^ 0x40);
    ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
  }

  std::string folder_;
  std::string path_;
  std::uint64_t end_ = 0;
};

TEST_F(JournalTest, AppendedRecordsAreReadAfterReopening) {
  write_three();
  auto again = Journal::open(path_);
  ASSERT_TRUE(again.has_value());
  ASSERT_EQ(again->records().size(), 3U);
  EXPECT_EQ(again->records()[1], make(1, RecordKind::kReleased));
  EXPECT_EQ(again->torn_bytes(), 0U);
  EXPECT_EQ(again->size_bytes(), end_);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(JournalTest, CopyIsUnchangedByLaterAppendsAndCompactions) {
  auto journal = *Journal::open(path_);
  const Record first = make(1, RecordKind::kBarrier);
  ASSERT_TRUE(journal.append(first).has_value());
  auto copy = *journal.copy();
  ASSERT_TRUE(journal.append(make(1, RecordKind::kReleased)).has_value());
  ASSERT_TRUE(journal.compact([](const Record&) { return true; }).has_value());
  std::string bytes(copy.bytes, '\0');
  ASSERT_EQ(::pread(copy.fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  const std::string other = folder_ + "/other";
  ASSERT_TRUE(write_file_durably(other, bytes).has_value());
  const auto read = Journal::open(other);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->records(), std::vector<Record>{first});
  EXPECT_EQ(read->torn_bytes(), 0U);
}

// A coordinator and agents of 2026-11 wrote this journal. It has a record of each kind, each with its own
// migration and one plan.
TEST_F(JournalTest, RecordedJournalIsRead) {
  ASSERT_TRUE(std::filesystem::copy_file(RECORDED "/switch.journal", path_));
  auto journal = Journal::open(path_);
  ASSERT_TRUE(journal.has_value()) << journal.error().to_string();
  const auto& records = journal->records();
  ASSERT_EQ(records.size(), 9U);
  std::size_t at = 0;
  for (const unsigned kind : {1, 2, 3, 4, 10, 11, 12, 20, 21}) {
    const Record& record = records[at++];
    EXPECT_EQ(record.kind, static_cast<RecordKind>(kind));
    EXPECT_EQ(record.info.migration, 40U + kind);
    EXPECT_EQ(record.info.base, 5U);
    EXPECT_EQ(record.info.ranks.at(1), RankPlace(1, "node-a", "1", "node-b", "0"));
    EXPECT_EQ(record.k, 6U);
    EXPECT_TRUE(record.owner);
    EXPECT_EQ(record.never_barrier, kind == 11);
    EXPECT_EQ(record.side, kind == 4 ? 2 : 0);
    EXPECT_EQ(record.reason, wire::Reason(ErrorCode::kTimedOut, "too late"));
    const auto plan = wire::decode_plan(record.info.plan);
    ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
    EXPECT_EQ(plan->source_node, "text");
    EXPECT_EQ(plan->options.new_argv.size(), 2U);
    EXPECT_TRUE(plan->last_pause.has_value());
    EXPECT_NE(plan->last_pause->bytes.all.back(), 0);
    EXPECT_NE(plan->communicators_ns, 0);
  }
}

TEST_F(JournalTest, JournalCannotBeOpenedTwice) {
  auto first = Journal::open(path_);
  ASSERT_TRUE(first.has_value());
  auto second = Journal::open(path_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kRefused);
}

TEST_F(JournalTest, TornTailIsTruncated) {
  write_three();
  const std::uint64_t whole = end_;
  // A crash in the middle of a write may leave the last record like this: the head is present, the rest is
  // missing.
  UniqueFd fd(::open(path_.c_str(), O_RDWR));
  const std::string zeroes(64, '\0');
  ASSERT_EQ(::pwrite(fd.get(), zeroes.data(), zeroes.size(), static_cast<off_t>(whole - 64)), 64);
  fd.reset();
  auto again = Journal::open(path_);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  Journal journal = *std::move(again);
  EXPECT_EQ(journal.records().size(), 2U);
  EXPECT_GT(journal.torn_bytes(), 0U);
  ASSERT_TRUE(journal.append(make(3, RecordKind::kBarrier)).has_value());
  EXPECT_EQ(journal.records().size(), 3U);
}

TEST_F(JournalTest, LastRecordTornAtAnyLengthIsTruncated) {
  write_three();
  const std::uint64_t start = end_ * 2 / 3;  // inside the third record, or shortly before it
  for (std::uint64_t cut = start; cut < end_; ++cut) {
    const std::string copy = folder_ + "/cut";
    std::filesystem::copy_file(path_, copy, std::filesystem::copy_options::overwrite_existing);
    ASSERT_EQ(::truncate(copy.c_str(), static_cast<off_t>(cut)), 0);
    auto again = Journal::open(copy);
    ASSERT_TRUE(again.has_value()) << cut << ": " << again.error().to_string();
    EXPECT_GE(again->records().size(), cut + 8 > end_ ? 2U : 1U) << cut;
    EXPECT_LE(again->records().size(), 3U);
    ASSERT_TRUE(again->append(make(9, RecordKind::kBarrier)).has_value());
  }
}

TEST_F(JournalTest, DamageInTheMiddleIsAnError) {
  write_three();
  flip(40);  // flips a byte in the first record's body
  auto again = Journal::open(path_);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), ErrorCode::kCorrupt);
}

TEST_F(JournalTest, CompactionSyncCountIsIndependentOfTheRecordCount) {
  const auto syncs_for = [this](std::size_t count) {
    std::filesystem::remove(path_);
    auto opened = Journal::open(path_);
    EXPECT_TRUE(opened.has_value());
    Journal journal = *std::move(opened);
    for (std::size_t id = 1; id <= count; ++id) {
      Record record = make(id, RecordKind::kBarrier);
      record.info.plan.resize(std::size_t{20} << 10);
      EXPECT_TRUE(journal.append(record).has_value());
    }
    const int before = syncs;
    EXPECT_TRUE(journal.compact([](const Record&) { return false; }).has_value());
    EXPECT_EQ(journal.records().size(), count);
    const int needed = syncs - before;
    EXPECT_TRUE(journal.append(make(count + 1, RecordKind::kBarrier)).has_value());
    return needed;
  };
  const int few = syncs_for(10);  // more syncs than the first growth step of the file
  EXPECT_EQ(syncs_for(100), few);
  auto again = Journal::open(path_);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_EQ(again->records().size(), 101U);
}

TEST_F(JournalTest, RefusesAForeignFile) {
  UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT, 0600));
  const std::string text(4096, 'x');
  ASSERT_EQ(::write(fd.get(), text.data(), text.size()), 4096);
  auto journal = Journal::open(path_);
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().code(), ErrorCode::kCorrupt);
}

// A scope with a file size limit, which simulates a full disk without privileges.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(JournalTest, FullDiskRefusesARecordWithoutDamage) {
  auto opened = Journal::open(path_);
  ASSERT_TRUE(opened.has_value());
  Journal journal = *std::move(opened);
  std::size_t written = 0;
  {
    const FileLimit limit(200'000);
    for (;;) {
      auto appended = journal.append(make(written + 1, RecordKind::kBarrier));
      if (!appended.has_value()) {
        EXPECT_EQ(appended.error().code(), ErrorCode::kRefused) << appended.error().to_string();
        break;
      }
      ASSERT_LT(++written, 10'000U);
    }
    auto reserved = journal.reserve();
    ASSERT_FALSE(reserved.has_value());
    EXPECT_EQ(reserved.error().code(), ErrorCode::kRefused);
  }
  EXPECT_EQ(journal.records().size(), written);
  ASSERT_TRUE(journal.append(make(99'999, RecordKind::kBarrier)).has_value());
  const std::string copy = folder_ + "/copy";
  std::filesystem::copy_file(path_, copy);
  auto again = Journal::open(copy);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->records().size(), written + 1);
}

// The file contains the plan once for each party of a migration. Each record is whole when it is read.
TEST_F(JournalTest, LaterRecordsOfAMigrationReferenceItsPlan) {
  constexpr std::size_t kPlan = std::size_t{100} << 10;
  const auto with_plan = [](MigrationId id, RecordKind kind, std::byte content) {
    Record record = make(id, kind);
    record.info.plan.assign(kPlan, content);
    return record;
  };
  const std::byte a{1};
  const std::byte b{2};
  const std::vector<Record> all = {
      with_plan(1, RecordKind::kBarrier, a), with_plan(2, RecordKind::kBarrier, b),
      with_plan(1, RecordKind::kResumed, a), with_plan(2, RecordKind::kReleased, b),
      with_plan(1, RecordKind::kResumed, b),  // this plan differs from the plan of the first record
      with_plan(1, RecordKind::kReleased, b)};
  {
    Journal journal = *Journal::open(path_);
    for (const Record& record : all) ASSERT_TRUE(journal.append(record).has_value());
    EXPECT_EQ(journal.records(), all);
    EXPECT_GT(journal.size_bytes(), 3 * kPlan);
    EXPECT_LT(journal.size_bytes(), 3 * kPlan + (std::size_t{4} << 10));
  }
  Journal again = *Journal::open(path_);
  EXPECT_EQ(again.records(), all);
  ASSERT_TRUE(again.compact([](const Record&) { return false; }).has_value());
  EXPECT_EQ(again.records(), (std::vector<Record>{all[5], all[3]}));
  ASSERT_TRUE(again.append(all[3]).has_value());
  EXPECT_LT(again.size_bytes(), 2 * kPlan + (std::size_t{4} << 10));
  EXPECT_EQ(again.records().back(), all[3]);
}

// Earlier software, which may be reinstalled, does not know records without a plan. Such records begin with
// the file's next version.
TEST_F(JournalTest, EarlierFileFormatIsReadAndKeptUntilCompaction) {
  write_three();
  const auto version = [this](char number) {
    UniqueFd fd(::open(path_.c_str(), O_RDWR));
    char now = 0;
    EXPECT_EQ(::pread(fd.get(), &now, 1, 7), 1);
    if (number != 0) {
      EXPECT_EQ(::pwrite(fd.get(), &number, 1, 7), 1);
    }
    return now;
  };
  EXPECT_EQ(version(0), '2');
  std::filesystem::remove(path_);
  {
    Journal journal = *Journal::open(path_);
    ASSERT_TRUE(journal.append(make(1, RecordKind::kBarrier)).has_value());
  }
  version('1');
  Journal journal = *Journal::open(path_);
  const std::uint64_t first = journal.size_bytes();
  ASSERT_TRUE(journal.append(make(1, RecordKind::kReleased)).has_value());
  EXPECT_EQ(journal.size_bytes(), first + first - 8) << "without its plan";
  EXPECT_EQ(journal.records().size(), 2U);
  ASSERT_TRUE(journal.compact([](const Record&) { return false; }).has_value());
  EXPECT_EQ(version(0), '2');
  EXPECT_EQ(journal.records(), std::vector<Record>{make(1, RecordKind::kReleased)});
}

TEST_F(JournalTest, ReserveExtendsTheFile) {
  auto opened = Journal::open(path_);
  ASSERT_TRUE(opened.has_value());
  Journal journal = *std::move(opened);
  ASSERT_TRUE(journal.reserve().has_value());
  EXPECT_GE(std::filesystem::file_size(path_), journal.size_bytes() + Journal::kReserveBytes);
}

TEST_F(JournalTest, CompactionKeepsTheNewestRecordOfEachMigration) {
  write_three();
  auto opened = Journal::open(path_);
  ASSERT_TRUE(opened.has_value());
  Journal journal = *std::move(opened);
  ASSERT_TRUE(journal.append(make(3, RecordKind::kBarrier)).has_value());
  ASSERT_TRUE(journal.compact([](const Record& r) { return r.info.migration == 3; }).has_value());
  ASSERT_EQ(journal.records().size(), 2U);
  EXPECT_EQ(journal.records()[0].kind, RecordKind::kReleased);
  ASSERT_TRUE(journal.append(make(4, RecordKind::kBarrier)).has_value());
  const std::string copy = folder_ + "/copy";
  std::filesystem::copy_file(path_, copy);
  auto again = Journal::open(copy);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->records().size(), 3U);
  auto locked = Journal::open(path_);
  EXPECT_FALSE(locked.has_value());
}

}  // namespace
}  // namespace ckpt::migration
