// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/image_notes.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

constexpr const char* kGpu = "GPU-00112233-4455-6677-8899-aabbccddeeff";

ImageNotes notes(const std::string& log) {
  ImageNotes notes;
  notes.gpu = kGpu;
  notes.log = log;
  notes.device_bytes = 3 << 20;
  return notes;
}

std::string text(const std::string& gpu, const std::string& log) {
  return R"({"gpu":")" + gpu + R"(","log":")" + log + R"(","device_bytes":1})";
}

TEST(ImageNotes, NotesAreParsedAsWritten) {
  for (const ImageNotes& written : {notes("/home/a/job/log"), notes("")}) {
    const auto read = parse_image_notes(to_text(written));
    ASSERT_TRUE(read.has_value()) << read.error().to_string();
    EXPECT_EQ(*read, written);
  }
}

TEST(ImageNotes, NotesAreWrittenIntoTheFolder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_image_notes(folder.path()).has_value());
  ASSERT_TRUE(write_image_notes(folder.path(), notes("/log")).has_value());
  const auto read = read_image_notes(folder.path());
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(*read, notes("/log"));
}

// The name of the log becomes an argument of CRIU's command line.
TEST(ImageNotes, ALogWithoutANameIsRefused) {
  EXPECT_TRUE(parse_image_notes(text(kGpu, "/a")).has_value());
  for (const char* log : {"/", "//", "a", "./a", R"(/a\u0000b)"}) {
    const auto read = parse_image_notes(text(kGpu, log));
    ASSERT_FALSE(read.has_value()) << log;
    EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(ImageNotes, NotesWithoutAGpuAreRefused) {
  for (const std::string& said :
       {std::string(), std::string("[]"), std::string("{}"), text("GPU-0", "/a"), text(kGpu, "/a") + "x"})
    EXPECT_FALSE(parse_image_notes(said).has_value()) << said;
}

}  // namespace
}  // namespace ckpt::agent
