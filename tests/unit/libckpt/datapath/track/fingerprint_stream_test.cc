// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/fingerprint_stream.h"

#include <gtest/gtest.h>

#include "tests/unit/libckpt/datapath/track/message.h"

namespace ckpt::track {
namespace {

std::shared_ptr<const FingerprintParams> params() {
  static const auto expanded = FingerprintParams::expand(test_key(), FingerprintPurpose::kChunks);
  return expanded;
}

TEST(FingerprintStream, ValueIsIndependentOfThePieceSizes) {
  const std::vector<std::byte> whole = test_message((9u << 20) + 4711);
  const std::span<const std::byte> bytes = whole;
  for (const std::uint64_t piece : {4096ull, 12288ull, 1ull << 20, 2ull << 20, 5ull << 20, 64ull << 20}) {
    FingerprintStream stream(params());
    for (std::uint64_t at = 0; at < bytes.size(); at += piece)
      stream.add(bytes.subspan(at, std::min<std::uint64_t>(piece, bytes.size() - at)));
    EXPECT_EQ(stream.value(), fingerprint(*params(), bytes)) << "pieces of " << piece;
  }
}

TEST(FingerprintStream, EmptyAndWholeBlockMessagesAreHashed) {
  FingerprintStream stream(params());
  EXPECT_EQ(stream.value(), fingerprint(*params(), {}));
  stream.add({});
  EXPECT_EQ(stream.value(), fingerprint(*params(), {}));
  const std::vector<std::byte> block = test_message(8192);
  stream.add(block);
  EXPECT_EQ(stream.value(), fingerprint(*params(), block));
}

TEST(FingerprintStream, SeveralThreadsGiveTheValueOfASingleThread) {
  for (const std::size_t length : {1000u, (16u << 20), (37u << 20) + 4097}) {
    const std::vector<std::byte> bytes = test_message(length);
    EXPECT_EQ(fingerprint_of_much(*params(), bytes), fingerprint(*params(), bytes)) << length;
  }
}

}  // namespace
}  // namespace ckpt::track
