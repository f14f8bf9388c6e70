// SPDX-License-Identifier: Apache-2.0
// Tests of the agent's record of its GPUs' health, of its kernel log reader, and of its watchdog over the
// process that calls NVML.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/health/findings.h"
#include "agent/health/health_helper.h"
#include "agent/health/health_record.h"
#include "agent/health/kernel_log_reader.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;

HealthRecord full_record() {
  HealthRecord record;
  record.boot_id = "boot";
  record.sequence = 17;
  record.next_number = 5;
  record.findings.emplace_back().number = 4;
  record.gpus.emplace_back().uuid = "GPU-1";
  record.seen.emplace_back().line = "NVRM: a";
  record.bystanders.emplace_back().job = 3;
  record.past.emplace_back().xid = 13;
  return record;
}

TEST(HealthRecord, RecordIsStoredAndLoadedUnchanged) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/health";
  ASSERT_TRUE(load_health(path).has_value());
  EXPECT_EQ(load_health(path)->next_number, 1U);
  ASSERT_TRUE(save_health(path, encode_health(full_record())).has_value());
  const auto read = load_health(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(encode_health(*read), encode_health(full_record()));
}

TEST(HealthRecord, EveryTruncationAndEveryFlippedBitIsDetected) {
  const auto bytes = encode_health(full_record());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_health(std::span(bytes).first(size)).has_value()) << size;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(decode_health(damaged).has_value()) << bit;
  }
}

TEST(HealthRecord, DamagedFileIsSetAsideAndItsNumbersAreNotReused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/health";
  std::ofstream(path) << "damaged";
  const auto read = load_health(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_GT(read->next_number, 1'000'000'000'000U);
  EXPECT_TRUE(std::filesystem::exists(path + ".damaged"));
}

TEST(Findings, FindingsAreTrimmedToFitTheirFrames) {
  std::vector<wire::HealthFinding> findings(100);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    findings[i].number = i + 1;
    findings[i].reason = std::string(400, 'x');
    findings[i].jobs.resize(64);
    for (wire::JobVerdict& verdict : findings[i].jobs) verdict.reason = std::string(400, 'y');
  }
  std::uint64_t next = 1;
  const auto reports = reports_of(findings, 90);
  EXPECT_GT(reports.size(), 5U);
  for (const wire::HealthReport& report : reports) {
    EXPECT_LE(wire::encode(report).size(), wire::max_body_bytes(wire::HealthReport::kFrame));
    for (const wire::HealthFinding& finding : report.findings) EXPECT_EQ(finding.number, next++);
  }
  EXPECT_EQ(next, 91U);  // later packets are not durable yet
}

TEST(Findings, FindingWithoutAnActionIsDroppedFirst) {
  std::vector<wire::HealthFinding> findings(3);
  for (std::size_t i = 0; i < 3; ++i) findings[i].number = i + 1;
  findings[0].cordon = true;
  drop_least(findings);
  EXPECT_EQ(findings.front().number, 1U);
  EXPECT_EQ(findings.size(), 2U);
}

class KernelLogTest : public ::testing::Test {
 protected:
  void read(const std::string& path) {
    auto files = FileWatch::create(io_.get_executor());
    ASSERT_TRUE(files.has_value());
    files_ = *std::move(files);
    auto reader = KernelLogReader::create(io_.get_executor(), *files_, path);
    ASSERT_TRUE(reader.has_value()) << reader.error().to_string();
    reader_ = *std::move(reader);
    KernelLogReader::Handlers handlers;
    handlers.record = [this](const health::KernelRecord& record) {
      numbers_.push_back(record.sequence);
      texts_.push_back(record.text);
    };
    handlers.caught_up = [this] { caught_up_ = true; };
    reader_->start(std::move(handlers));
  }
  void TearDown() override {
    if (reader_) reader_->stop();
  }
  TemporaryFolder folder_;
  asio::io_context io_;
  std::shared_ptr<FileWatch> files_;
  std::shared_ptr<KernelLogReader> reader_;
  std::vector<std::uint64_t> numbers_;
  std::vector<std::string> texts_;
  bool caught_up_ = false;
};

TEST_F(KernelLogTest, ReaderReadsLinesAppendedToTheFile) {
  const std::string path = folder_.path() + "/log";
  std::ofstream file(path, std::ios::app);
  file << "3,1,10,-;one\nno record\n3,2,20,-;tw" << std::flush;
  read(path);
  run_until(io_, [&] { return caught_up_; });
  EXPECT_THAT(numbers_, ElementsAre(1));
  file << "o\n3,3,30,-;three\n" << std::flush;
  run_until(io_, [&] { return numbers_.size() == 3; });
  EXPECT_THAT(texts_, ElementsAre("one", "two", "three"));
}

TEST_F(KernelLogTest, ReaderKeepsReadingAFifoAfterItsWritersClose) {
  const std::string path = folder_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  read(path);
  for (std::uint64_t number = 1; number <= 2; ++number) {
    std::ofstream(path) << "3," << number << ",1,-;text\n";
    run_until(io_, [&] { return numbers_.size() == number; });
  }
}

TEST_F(KernelLogTest, ALineLongerThanAnyRecordIsSkipped) {
  const std::string path = folder_.path() + "/log";
  std::ofstream(path) << "3,1,1,-;" << std::string(100'000, 'x') << "\n3,2,1,-;next\n";
  read(path);
  run_until(io_, [&] { return caught_up_; });
  EXPECT_THAT(numbers_, ElementsAre(2));
}

TEST_F(KernelLogTest, MissingFileIsAnError) {
  auto files = FileWatch::create(io_.get_executor());
  ASSERT_TRUE(files.has_value());
  EXPECT_FALSE(KernelLogReader::create(io_.get_executor(), **files, "/nowhere").has_value());
}

// Tests with a program in the helper's place: a shell script.
class WatchdogTest : public ::testing::Test {
 protected:
  static constexpr Milliseconds kSoon{50};
  static constexpr Milliseconds kLate{400};  // more than the delay on any busy machine
  void start(const std::string& script, Milliseconds silence) {
    HealthHelperSettings settings;
    settings.program = folder_.path() + "/helper";
    std::ofstream(settings.program) << "#!/bin/sh\n" << script << "\n";
    ASSERT_EQ(::chmod(settings.program.c_str(), 0700), 0);
    settings.library = "none";
    settings.log_path = folder_.path() + "/log";
    settings.silence = settings.start_silence = silence;
    settings.first_backoff = settings.max_backoff = Milliseconds(10);
    HealthHelper::Handlers handlers;
    handlers.report = [this](const nvml_watch::Report&) { ++reports_; };
    handlers.silent = [this] { ++silent_; };
    handlers.answers = [this] { ++answers_; };
    helper_ = HealthHelper::create(io_.get_executor(), std::move(settings), std::move(handlers));
    helper_->start();
  }
  // Blocks the agent until the helper has done `script`, which takes longer than a helper may be silent.
  void hold_up_during(const std::string& script) {
    const std::string fifo = folder_.path() + "/fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    start("sleep 1; " + script + " echo done > " + fifo + "; exec sleep 1000", kLate);
    std::string word;
    std::ifstream(fifo) >> word;
    ASSERT_EQ(word, "done");
  }
  void TearDown() override {
    if (helper_) helper_->stop();
  }
  [[nodiscard]] std::size_t starts() const {
    std::ifstream file(folder_.path() + "/log");
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) count += line == "started";
    return count;
  }
  TemporaryFolder folder_;
  asio::io_context io_;
  std::shared_ptr<HealthHelper> helper_;
  int reports_ = 0;
  int silent_ = 0;
  int answers_ = 0;
};

TEST_F(WatchdogTest, SilentHelperIsRestartedAndReportedOnce) {
  start("echo started; exec sleep 1000", kSoon);
  run_until(io_, [&] { return starts() >= 3; });
  EXPECT_EQ(silent_, 1);
  EXPECT_EQ(answers_, 0);
}

TEST_F(WatchdogTest, AHelperThatExitsIsRestartedAndNotReportedAsSilent) {
  start("echo started", kLate);
  run_until(io_, [&] { return starts() >= 3; });
  EXPECT_EQ(silent_, 0);
}

TEST_F(WatchdogTest, DelayedWatchdogReadsReportsBeforeReportingSilence) {
  nvml_watch::Report ready;
  ready.kind = nvml_watch::Kind::kReady;
  const auto packet = wire::encode(ready);
  std::ofstream(folder_.path() + "/ready", std::ios::binary)
      .write(reinterpret_cast<const char*>(packet.data()), static_cast<std::streamsize>(packet.size()));
  hold_up_during("cat " + folder_.path() + "/ready >&3;");
  run_until(io_, [&] { return reports_ > 0 || silent_ > 0; });
  io_.poll();
  EXPECT_EQ(reports_, 1);
  EXPECT_EQ(silent_, 0);
}

TEST_F(WatchdogTest, DelayedWatchdogWaitsForAnotherInterval) {
  hold_up_during("");
  io_.poll();
  EXPECT_EQ(silent_, 0);
  run_until(io_, [&] { return silent_ > 0; });
}

}  // namespace
}  // namespace ckpt::agent
