// SPDX-License-Identifier: Apache-2.0
#include "coordinator/output/output_copies.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::uint64_t kMuch = std::uint64_t{1} << 30;
constexpr std::uint64_t kBlock = 4096;

class OutputCopiesTest : public ::testing::Test {
 protected:
  OutputCopiesTest() {
    std::string pattern = "/tmp/output-copies-XXXXXX";
    folder_ = std::string(::mkdtemp(pattern.data())) + "/output";
  }
  void TearDown() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }

  // Opens the copies as at a start of the coordinator.
  OutputCopies& open(std::uint64_t limit = kMuch) {
    copies_.emplace(folder_, limit);
    EXPECT_TRUE(copies_->load().has_value());
    return *copies_;
  }
  template <class T>
  T run(control::Task<T> task) {
    std::optional<T> value;
    const auto wait = [](control::Task<T> work, std::optional<T>& to) -> control::Task<> {
      to.emplace(co_await std::move(work));
    };
    control::spawn(io_.get_executor(), "a test", wait(std::move(task), value));
    io_.restart();
    io_.run();
    return std::move(*value);
  }
  void append(JobId job, Incarnation incarnation, std::uint64_t offset, const std::string& bytes) {
    const auto appended = run(copies_->append(job, incarnation, offset, bytes));
    EXPECT_TRUE(appended.has_value()) << appended.error().to_string();
  }
  // Returns the part of the copy at `offset` as "OFFSET:BYTES".
  std::string read(JobId job, Incarnation incarnation, std::uint64_t offset, std::size_t limit = 1000) {
    auto part = run(copies_->read(job, incarnation, offset, limit));
    if (!part) return part.error().to_string();
    begins_line_ = part->begins_line;
    return std::to_string(part->offset) + ":" + part->bytes;
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  control::asio::io_context io_;
  std::string folder_;
  std::optional<OutputCopies> copies_;
  bool begins_line_ = false;
};

TEST_F(OutputCopiesTest, PartsAreAppendedInOrderAndSurviveARestart) {
  open();
  append(7, 1, 0, "one\ntw");
  append(7, 1, 6, "o\n");
  append(7, 2, 0, "three\n");
  EXPECT_EQ(read(7, 1, 0), "0:one\ntwo\n");
  EXPECT_EQ(read(7, 1, 4, 2), "4:tw");
  EXPECT_TRUE(begins_line_);
  EXPECT_EQ(read(7, 1, 5), "5:wo\n");
  EXPECT_FALSE(begins_line_);
  EXPECT_EQ(read(7, 1, 100), "8:");
  open();
  EXPECT_EQ(read(7, 1, 0), "0:one\ntwo\n");
  EXPECT_EQ(read(7, 2, 0), "0:three\n");
  EXPECT_EQ(copies_->find(7, 1)->end, 8U);
  EXPECT_FALSE(copies_->find(8, 1).has_value());
}

TEST_F(OutputCopiesTest, DuplicateBytesAreNotWrittenTwice) {
  open();
  append(7, 1, 0, "one\n");
  append(7, 1, 0, "one\n");
  append(7, 1, 2, "e\ntwo\n");
  EXPECT_EQ(read(7, 1, 0), "0:one\ntwo\n");
}

TEST_F(OutputCopiesTest, AGapRestartsTheCopy) {
  open();
  append(7, 1, 0, "one\n");
  append(7, 1, 100, "much later\n");
  EXPECT_EQ(read(7, 1, 0), "100:much later\n");
  append(7, 1, 20, "earlier\n");  // an instance that was restarted under the same number
  EXPECT_EQ(read(7, 1, 0), "20:earlier\n");
}

TEST_F(OutputCopiesTest, CopyKeepsTheLastMebibyteFromALineStart) {
  open();
  const std::string line(99, 'x');
  std::uint64_t offset = 0;
  while (offset < 5 * kKeptOutput) {
    std::string piece;
    for (int i = 0; i < 2000; ++i) piece += line + "\n";
    append(7, 1, offset, piece);
    offset += piece.size();
  }
  const auto extent = copies_->find(7, 1);
  EXPECT_EQ(extent->end, offset);
  EXPECT_GE(extent->end - extent->begin, kKeptOutput - 100);
  EXPECT_LE(extent->end - extent->begin, 2 * kKeptOutput);
  EXPECT_EQ(extent->begin % 100, 0U);
  EXPECT_EQ(read(7, 1, 0, 100), std::to_string(extent->begin) + ":" + line + "\n");
  EXPECT_EQ(copies_->bytes(), (extent->end - extent->begin + 16 + kBlock - 1) / kBlock * kBlock);
}

TEST_F(OutputCopiesTest, LeastRecentlyChangedCopyIsRemovedBeyondTheLimit) {
  open(2 * kBlock);
  append(1, 1, 0, "12345678\n");
  append(2, 1, 0, "12345\n");
  append(1, 1, 0, "12345678\n");
  append(2, 1, 6, "78\n");
  append(3, 1, 0, "12345678\n");
  EXPECT_FALSE(copies_->find(1, 1).has_value());
  EXPECT_TRUE(copies_->find(2, 1).has_value());
  EXPECT_TRUE(copies_->find(3, 1).has_value());
  EXPECT_EQ(files(), 2U);
  EXPECT_EQ(copies_->bytes(), 2 * kBlock);
}

TEST_F(OutputCopiesTest, CopiesAreRemovedWithTheirJob) {
  open();
  append(1, 1, 0, "one\n");
  append(2, 1, 0, "two\n");
  const auto keep = [this]() -> control::Task<bool> {
    co_await copies_->retain_only([](JobId job) { return job == 2; });
    co_return true;
  };
  run(keep());
  EXPECT_FALSE(copies_->find(1, 1).has_value());
  EXPECT_EQ(read(2, 1, 0), "0:two\n");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputCopiesTest, InvalidFilesAreRemovedAtStartup) {
  open();
  append(1, 1, 0, "one\n");
  for (const char* name : {"0000000000000002-1", "0000000000000001-1.new", "else"})
    std::ofstream(folder_ + "/" + name) << "no copy of a log";
  open();
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(read(1, 1, 0), "0:one\n");
  open(0);  // with a limit of 0 no copies are kept
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputCopiesTest, ACopyDamagedAfterStartupIsAnError) {
  open();
  append(1, 1, 0, "one\n");
  std::ofstream(folder_ + "/0000000000000001-1", std::ios::trunc) << "short";
  EXPECT_NE(read(1, 1, 0).find("is not a copy of a log"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::coordinator
