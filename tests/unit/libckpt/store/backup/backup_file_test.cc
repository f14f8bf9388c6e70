// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/backup/backup_file.h"

#include <unistd.h>

#include <cstring>

#include "libckpt/protocol/wire/codec.h"
#include "tests/unit/libckpt/store/backup/folder.h"

namespace ckpt::backup {
namespace {

using BackupFileTest = BackupTest;

std::string part_of(const BackupFile& file, std::size_t i) {
  std::FILE* const stream = std::tmpfile();
  EXPECT_TRUE(file.extract(i, ::fileno(stream)).has_value());
  std::string text(static_cast<std::size_t>(::lseek(::fileno(stream), 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(::fileno(stream), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  std::fclose(stream);
  return text;
}

// Opens the backup, reads all of it, and returns the result.
Result<void> judge(const std::string& path) {
  CKPT_TRY(file, BackupFile::open(path));
  return file.verify();
}

std::string beginning_with(const Contents& contents) {
  const auto header = wire::encode(contents);
  const std::uint32_t numbers[2] = {static_cast<std::uint32_t>(header.size()), wire::crc32(header)};
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  out.append(reinterpret_cast<const char*>(header.data()), header.size());
  return out;
}

TEST_F(BackupFileTest, BackupContainsAllParts) {
  fill_home("a");
  make_backup();
  auto file = *BackupFile::open(this->file());
  EXPECT_EQ(file.contents().cluster, "c0ffee");
  EXPECT_EQ(file.contents().software, "1.2");
  EXPECT_EQ(file.contents().made_ms, 77);
  EXPECT_EQ(file.contents().jobs, 3U);
  EXPECT_EQ(file.contents().migrations, 4U);
  EXPECT_TRUE(file.verify().has_value());
  for (std::size_t i = 0; i < kParts.size(); ++i)
    EXPECT_TRUE(part_of(file, i) == part_text(i, "a")) << kParts[i];
}

TEST_F(BackupFileTest, BackupAndItsCopyAreReadableOnlyByTheirOwner) {
  fill_home("a");
  put(file(), "what was there");
  make_backup();
  const std::string copy = file() + "-copy";
  ASSERT_TRUE(BackupFile::open(file())->copy_to(copy).has_value());
  EXPECT_TRUE(text_of(copy) == text_of(file()));
  for (const std::string& path : {file(), copy}) {
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  }
}

TEST_F(BackupFileTest, ATruncatedBackupIsRefused) {
  fill_home("a");
  make_backup();
  const std::string whole = text_of(file());
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, std::size_t{15}, std::size_t{16},
                                  std::size_t{40}, whole.size() / 2, whole.size() - 1}) {
    put(file(), whole.substr(0, bytes));
    const auto judged = judge(file());
    ASSERT_FALSE(judged.has_value()) << bytes;
    EXPECT_EQ(judged.error().code(), ErrorCode::kCorrupt) << bytes;
  }
  put(file(), whole + "x");
  EXPECT_FALSE(judge(file()).has_value());
}

TEST_F(BackupFileTest, AFlippedBitAnywhereIsDetected) {
  fill_home("a");
  make_backup();
  const std::string whole = text_of(file());
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < 300; ++at) places.push_back(at);
  for (std::size_t at = 300; at < whole.size(); at += 100'003) places.push_back(at);
  places.push_back(whole.size() - 1);
  const UniqueFd file(::open(this->file().c_str(), O_WRONLY | O_CLOEXEC));
  for (const std::size_t at : places) {
    const auto flipped = static_cast<char>(whole[at] ^ (1 << at % 8));
    ASSERT_EQ(::pwrite(file.get(), &flipped, 1, static_cast<off_t>(at)), 1);
    EXPECT_FALSE(judge(this->file()).has_value()) << "at " << at;
    ASSERT_EQ(::pwrite(file.get(), &whole[at], 1, static_cast<off_t>(at)), 1);
  }
  EXPECT_TRUE(judge(this->file()).has_value());
}

TEST_F(BackupFileTest, InvalidPartSizesAreRefusedBeforeReading) {
  Contents contents;
  for (const std::vector<std::uint64_t>& sizes : {std::vector<std::uint64_t>{},
                                                  {1, 1, 1, 1, 1},
                                                  {1, 1, 1, 1, 1, 1, 1},
                                                  {~0ULL, 1, 0, 0, 0, 0},
                                                  {kMaxPartBytes + 1, 0, 0, 0, 0, 0},
                                                  {5, 0, 0, 0, 0, 0}}) {
    contents.sizes = sizes;
    const std::string text = beginning_with(contents);
    const auto bytes = std::as_bytes(std::span(text));
    const auto parsed = parse_beginning(bytes, bytes.size());
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code(), ErrorCode::kCorrupt);
  }
  // The sizes come from an earlier version, which had fewer parts.
  contents.sizes = std::vector<std::uint64_t>(kRequiredParts, 0);
  const std::string earlier = beginning_with(contents);
  const auto parsed = parse_beginning(std::as_bytes(std::span(earlier)), earlier.size());
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->contents.sizes.size(), kParts.size());
  contents.sizes = std::vector<std::uint64_t>(kParts.size(), 0);
  const std::string text = beginning_with(contents);
  EXPECT_TRUE(parse_beginning(std::as_bytes(std::span(text)), text.size()).has_value());
}

TEST_F(BackupFileTest, AnOversizedHeaderIsRefused) {
  std::string text(kMagic);
  const std::uint32_t numbers[2] = {0xffff'ffff, 0};
  text.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  text.resize(kPrefixBytes + kMaxHeaderBytes);
  EXPECT_FALSE(parse_beginning(std::as_bytes(std::span(text)), ~0ULL).has_value());
}

TEST_F(BackupFileTest, AFolderIsNotAcceptedAsABackup) {
  EXPECT_FALSE(BackupFile::open(home()).has_value());
}

}  // namespace
}  // namespace ckpt::backup
