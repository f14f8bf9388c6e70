// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/page_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::string content_of(int file, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  EXPECT_EQ(::pread(file, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
  return text;
}

// Opens the file as CRIU opens its images.
UniqueFd open_as_criu(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
}

std::string text_of(std::uint64_t bytes) {
  std::string text(bytes, '\0');
  for (std::uint64_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + (i >> 12));
  return text;
}

class PageStreamTest : public ::testing::Test {
 protected:
  // A write that fails with EPIPE must not end the test.
  void SetUp() override { before_ = std::signal(SIGPIPE, SIG_IGN); }
  void TearDown() override { std::signal(SIGPIPE, before_); }
  TemporaryFolder folder_;

 private:
  void (*before_)(int) = nullptr;
};

TEST_F(PageStreamTest, WrittenPagesAreInThePackWithReportedProgress) {
  auto stream = *PageStream::create(16 * kMiB, 4 * kMiB);
  std::vector<std::uint64_t> told;
  ASSERT_TRUE(stream->begin(folder_.path(), 1, [&told](std::uint64_t filled) { told.push_back(filled); }));
  EXPECT_FALSE(stream->has_any());
  const std::string pages = text_of(9 * kMiB + 4096);
  {
    const UniqueFd criu = open_as_criu(folder_ / "pages-2.img");
    ASSERT_TRUE(criu);
    ASSERT_TRUE(write_all(criu.get(), std::as_bytes(std::span(pages))));
  }
  auto placed = stream->finish();
  ASSERT_TRUE(placed.has_value()) << placed.error().to_string();
  EXPECT_TRUE(stream->has_any());
  EXPECT_EQ(placed->bytes, pages.size());
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_LE(told.back(), pages.size());
  auto packed = pack_folder(folder_.path(), *std::move(placed));
  ASSERT_TRUE(packed.has_value()) << packed.error().to_string();
  EXPECT_EQ(content_of(packed->file.get(), pages.size()), pages);
  EXPECT_GT(packed->bytes, pages.size()) << "the table is behind them";
}

TEST_F(PageStreamTest, StreamWithoutAWriterFinishes) {
  auto stream = *PageStream::create(kMiB, 0);
  ASSERT_TRUE(stream->begin(folder_.path(), 0, [](std::uint64_t) {}));
  auto placed = stream->finish();
  ASSERT_TRUE(placed.has_value());
  EXPECT_EQ(placed->bytes, 0u);
}

TEST_F(PageStreamTest, PagesBeyondTheLimitFailAndReleaseTheWriter) {
  auto stream = *PageStream::create(kMiB, kMiB);
  ASSERT_TRUE(stream->begin(folder_.path(), 0, [](std::uint64_t) {}));
  const UniqueFd criu = open_as_criu(folder_ / "pages-1.img");
  const std::string pages(16 * kMiB, 'p');
  EXPECT_FALSE(write_all(criu.get(), std::as_bytes(std::span(pages)))) << "the reader is gone";
  const auto placed = stream->finish();
  ASSERT_FALSE(placed.has_value());
  EXPECT_EQ(placed.error().code(), ErrorCode::kOutOfMemory);
}

// An agent that exits does not wait for a CRIU that hangs.
TEST_F(PageStreamTest, DestroyedStreamDoesNotWaitForItsWriter) {
  auto stream = *PageStream::create(kMiB, 0);
  ASSERT_TRUE(stream->begin(folder_.path(), 0, [](std::uint64_t) {}));
  const UniqueFd criu = open_as_criu(folder_ / "pages-1.img");
  stream.reset();
  const char byte = 0;
  EXPECT_LT(::write(criu.get(), &byte, 1), 0);
}

}  // namespace
}  // namespace ckpt::agent::host
