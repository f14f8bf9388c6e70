// SPDX-License-Identifier: Apache-2.0
// Tests of a process image as one file. Packing and unpacking preserves the content, and a malformed image
// from another node is refused.
#include "agent/host_process/image_pack.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ImagePackTest : public ::testing::Test {
 protected:
  // Returns the bytes of a pack with two files, which a test can modify.
  std::string packed_bytes() {
    write(from_ / "core-1.img", "first");
    write(from_ / "pages-1.img", std::string(100000, 'p'));
    auto packed = pack_folder(from_.path());
    EXPECT_TRUE(packed.has_value());
    std::string bytes(packed->bytes, '\0');
    EXPECT_EQ(::pread(packed->file.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  ErrorCode unpack(const std::string& bytes, std::uint64_t stated) {
    auto file = make_memory_file("test", bytes.size());
    EXPECT_EQ(::pwrite(file->get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    TemporaryFolder to;
    const auto unpacked = unpack_folder(file->get(), stated, to.path());
    return unpacked.has_value() ? ErrorCode{} : unpacked.error().code();
  }
  ErrorCode unpack(const std::string& bytes) { return unpack(bytes, bytes.size()); }

  // Offsets from the end of a pack of two files.
  static constexpr std::size_t kCount = 4;
  static constexpr std::size_t kMagic = 16;
  static constexpr std::size_t kSecond = 80;  // offset of the bytes of the second file
  static constexpr std::size_t kSecondName = 72;
  static constexpr std::size_t kFirst = 144;
  static constexpr std::size_t kFirstName = 136;
  TemporaryFolder from_;
};

TEST_F(ImagePackTest, PackedFilesAreUnpackedUnchanged) {
  write(from_ / "core-1.img", "first");
  write(from_ / "empty.img", "");
  const std::string pages(3 << 20, 'p');
  write(from_ / "pages-1.img", pages);
  auto packed = pack_folder(from_.path());
  ASSERT_TRUE(packed.has_value());
  TemporaryFolder to;
  ASSERT_TRUE(unpack_folder(packed->file.get(), packed->bytes, to.path()).has_value());
  EXPECT_EQ(read(to / "core-1.img"), "first");
  EXPECT_EQ(read(to / "empty.img"), "");
  // pages-1.img may be the pack itself, which is longer than the pages.
  EXPECT_EQ(read(to / "pages-1.img").substr(0, pages.size()), pages);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(to.path()), {}), 3);
}

// Pages that CRIU writes through the link are not copied, neither at the source nor at the target.
TEST_F(ImagePackTest, PagesWrittenThroughTheLinkArePackedWithoutACopy) {
  auto pages = place_pages(from_.path(), 1);
  ASSERT_TRUE(pages.has_value());
  const std::string content(3 << 20, 'p');
  write(from_ / "pages-2.img", content);
  write(from_ / "core-1.img", "first");
  const int file = pages->file.get();
  auto packed = pack_folder(from_.path(), *std::move(pages));
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(packed->file.get(), file);
  TemporaryFolder to;
  ASSERT_TRUE(unpack_folder(packed->file.get(), packed->bytes, to.path()).has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(to / "pages-2.img"));
  EXPECT_EQ(read(to / "pages-2.img").substr(0, content.size()), content);
  EXPECT_EQ(read(to / "core-1.img"), "first");
}

// CRIU opens the link in a process with the job's own /proc, in which this process has no folder.
TEST_F(ImagePackTest, LinkDoesNotBeginAtTheRootOfItsReader) {
  const auto pages = place_pages(from_.path(), 0);
  ASSERT_TRUE(pages.has_value());
  const auto target = std::filesystem::read_symlink(from_.path() + "/pages-1.img");
  EXPECT_TRUE(target.is_relative()) << target;
  EXPECT_TRUE(std::filesystem::equivalent(from_.path() + "/pages-1.img",
                                          "/proc/self/fd/" + std::to_string(pages->file.get())));
}

TEST_F(ImagePackTest, PageFilesThatCriuDidNotWriteAreEmpty) {
  auto pages = place_pages(from_.path(), 4);
  write(from_ / "pages-2.img", std::string(2 << 20, 'p'));
  auto packed = pack_folder(from_.path(), *std::move(pages));
  ASSERT_TRUE(packed.has_value());
  TemporaryFolder to;
  ASSERT_TRUE(unpack_folder(packed->file.get(), packed->bytes, to.path()).has_value());
  EXPECT_EQ(std::filesystem::file_size(to / "pages-2.img"), 2u << 20);
  EXPECT_EQ(std::filesystem::file_size(to / "pages-5.img"), 0u);
}

TEST_F(ImagePackTest, OnlyRegularFilesArePacked) {
  std::filesystem::create_symlink("/etc/passwd", from_ / "link.img");
  const auto packed = pack_folder(from_.path());
  ASSERT_FALSE(packed.has_value());
  EXPECT_EQ(packed.error().code(), ErrorCode::kRefused);
}

TEST_F(ImagePackTest, EveryTruncatedPackIsRefused) {
  const std::string bytes = packed_bytes();
  EXPECT_EQ(unpack(bytes), ErrorCode{});
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{15}, std::size_t{16}, std::size_t{100}, bytes.size() - 1})
    EXPECT_EQ(unpack(bytes.substr(0, length)), ErrorCode::kCorrupt) << length;
  EXPECT_EQ(unpack(bytes + "x"), ErrorCode::kCorrupt);
  EXPECT_EQ(unpack(bytes, bytes.size() + 1), ErrorCode::kCorrupt);
}

TEST_F(ImagePackTest, InconsistentCountsAndSizesAreRefused) {
  const std::string bytes = packed_bytes();
  const auto with = [&bytes](std::size_t from_end, const void* value, std::size_t size) {
    std::string changed = bytes;
    std::memcpy(changed.data() + changed.size() - from_end, value, size);
    return changed;
  };
  for (const std::uint32_t count : {0u, 1u, 3u, 65537u, ~0u})
    EXPECT_EQ(unpack(with(kCount, &count, sizeof count)), ErrorCode::kCorrupt) << count;
  for (const std::uint64_t size :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{100001}}) {
    EXPECT_EQ(unpack(with(kFirst, &size, sizeof size)), ErrorCode::kCorrupt) << size;
    EXPECT_EQ(unpack(with(kSecond, &size, sizeof size)), ErrorCode::kCorrupt) << size;
  }
  const std::uint64_t magic = 0;
  EXPECT_EQ(unpack(with(kMagic, &magic, sizeof magic)), ErrorCode::kCorrupt);
}

TEST_F(ImagePackTest, NamesThatLeaveTheFolderAreRefused) {
  const std::string bytes = packed_bytes();
  const auto named = [&bytes](const std::string& name) {
    std::string changed = bytes;
    char* at = changed.data() + changed.size() - kFirstName;
    std::memset(at, 0, 56);
    std::memcpy(at, name.data(), std::min<std::size_t>(name.size(), 56));
    return changed;
  };
  EXPECT_EQ(unpack(named("other.img")), ErrorCode{});
  for (const char* name : {"", ".", "..", "../x", "/etc/x", "a/b", ".hidden", "a b"})
    EXPECT_EQ(unpack(named(name)), ErrorCode::kCorrupt) << name;
  EXPECT_EQ(unpack(named(std::string(56, 'n'))), ErrorCode::kCorrupt);
  // The folder is listed in no fixed order. Whichever name the second file has, the first file gets the same
  // name.
  const std::string second = bytes.substr(bytes.size() - kSecondName, 56);
  EXPECT_EQ(unpack(named(second)), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ckpt::agent::host
