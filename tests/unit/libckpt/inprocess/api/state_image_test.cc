// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/state_image.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace ckpt::job {
namespace {

PlannedEntry entry(EntryKind kind, const std::string& name, const std::string& data) {
  return {kind, name, data.size(), [data](std::span<std::byte> out) -> Result<void> {
            std::memcpy(out.data(), data.data(), data.size());
            return ok();
          }};
}

StateFile sample() {
  const std::vector<PlannedEntry> entries = {entry(EntryKind::kBytes, "step", "12345678"),
                                             entry(EntryKind::kCallback, "rng", std::string(1000, 'r')),
                                             entry(EntryKind::kTensor, "globals", "tensor"),
                                             entry(EntryKind::kCallback, "empty", "")};
  return std::move(*write_state(entries));
}

std::string text_of(const StateEntry* entry) {
  return entry == nullptr
             ? "(none)"
             : std::string(reinterpret_cast<const char*>(entry->data.data()), entry->data.size());
}

TEST(StateImage, StateImageIsReadAsWritten) {
  const StateFile file = sample();
  const Result<StateImage> image = StateImage::read(file.fd.get(), file.bytes);
  ASSERT_TRUE(image.has_value()) << image.error().to_string();
  EXPECT_EQ(image->entries().size(), 4u);
  EXPECT_EQ(text_of(image->find(EntryKind::kBytes, "step")), "12345678");
  EXPECT_EQ(text_of(image->find(EntryKind::kCallback, "rng")), std::string(1000, 'r'));
  EXPECT_EQ(text_of(image->find(EntryKind::kTensor, "globals")), "tensor");
  EXPECT_EQ(text_of(image->find(EntryKind::kCallback, "empty")), "");
  EXPECT_EQ(image->find(EntryKind::kTensor, "step"), nullptr);
}

TEST(StateImage, EmptyStateIsValid) {
  const StateFile file = std::move(*write_state({}));
  EXPECT_GT(file.bytes, 0u);
  EXPECT_TRUE(StateImage::read(file.fd.get(), file.bytes).has_value());
}

TEST(StateImage, EveryFlippedByteIsDetected) {
  const StateFile file = sample();
  std::mt19937 random(3);
  for (std::uint64_t at = 0; at < file.bytes; ++at) {
    unsigned char byte = 0;
    ASSERT_EQ(::pread(file.fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
    const unsigned char flipped = byte ^ static_cast<unsigned char>(1u << (random() % 8));
    ASSERT_EQ(::pwrite(file.fd.get(), &flipped, 1, static_cast<off_t>(at)), 1);
    const Result<StateImage> image = StateImage::read(file.fd.get(), file.bytes);
    ASSERT_FALSE(image.has_value()) << "byte " << at;
    EXPECT_EQ(image.error().code(), ErrorCode::kCorrupt);
    ASSERT_EQ(::pwrite(file.fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
  }
  EXPECT_TRUE(StateImage::read(file.fd.get(), file.bytes).has_value());
}

TEST(StateImage, WrongSizesAreRefused) {
  const StateFile file = sample();
  for (std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{16}, file.bytes - 16, file.bytes - 1,
                              file.bytes + 16, ~std::uint64_t{0}}) {
    EXPECT_FALSE(StateImage::read(file.fd.get(), bytes).has_value()) << bytes;
  }
}

TEST(StateImage, FailedFillIsReturnedAsTheError) {
  PlannedEntry broken = entry(EntryKind::kTensor, "t", "data");
  broken.fill = [](std::span<std::byte>) -> Result<void> { return Error(ErrorCode::kDevice, "lost"); };
  const Result<StateFile> file = write_state(std::span(&broken, 1));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), ErrorCode::kDevice);
}

}  // namespace
}  // namespace ckpt::job
