// SPDX-License-Identifier: Apache-2.0
// Tests of one plane as a frame: the round trip, frames written by earlier builds, and broken frames.
#include "libckpt/datapath/codec/plane_packer.h"

#include <gtest/gtest.h>

#include <bit>
#include <string_view>
#include <vector>

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMaxBytes = 600'000;

// Returns a plane in which each value is half as frequent as the previous value.
Bytes make_plane(std::size_t bytes) {
  Bytes plane(bytes);
  std::uint32_t state = 1;
  for (std::byte& value : plane) {
    state = state * 1664525U + 1013904223U;
    value = std::byte(static_cast<unsigned>(std::countr_zero((state >> 8) | 1U << 23)));
  }
  return plane;
}

// make_plane(1200) as the project's own coder packed it (docs/adr/0016). Images of such builds contain frames
// of this form.
constexpr std::string_view kOfOwnCoder =
    "0008e509000a4bdc048c9876543201000047004d004b004701b462e772ed591ed5ea93d4aad341334d394f077d3c5bbf"
    "b5126ec077fad3a0e1ab4cf87ff2cdcf1f6396db21f990cd956b838b8d6a17cd063e2c1cf7ac759d891887a0ef019d74"
    "323b0d96c81cc5c6be4177de6408276eb52b7c5e09fc3e719d710f64a2d34568406da7cace171b094d2720d57153fa8e"
    "a20a22750919934283529ab19359bc28b7f5ba2d6e1fd3b319510bb5156551946dae0d7a40e9cc90276786ce7ccb1bb6"
    "42c0b82c260d773a316ff4928c88af424642e072b185a57bc1e57b63c4cf402650679fcb5f6001f649d0fa7f7dd8ef6f"
    "9bceb8fa1a031dfa034df3550ce4ff11dff8f16786c5ed44f8c406575c9bcba6daa561f359ce3db0d6750c9239e97b52"
    "3f5f27b7f35ab99cca0219c62582c67d34b0ca721521ee2c289f8b22a912380500";

Bytes from_hex(std::string_view text) {
  const auto digit = [](char ch) { return ch <= '9' ? ch - '0' : ch - 'a' + 10; };
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(std::byte(static_cast<unsigned>(digit(text[i]) * 16 + digit(text[i + 1]))));
  return bytes;
}

class PlanePackerTest : public testing::Test {
 protected:
  Bytes pack(const Bytes& plane, bool nearly_constant = false) {
    Bytes out(plane.size() + 1024);
    out.resize(packer_.pack(plane, nearly_constant, out).value());
    return out;
  }
  bool unpacks_to(const Bytes& frame, const Bytes& plane) {
    Bytes back(plane.size());
    return packer_.unpack(frame, back) && back == plane;
  }

  PlanePacker packer_ = PlanePacker::create(kMaxBytes).value();
};

TEST_F(PlanePackerTest, PlanesOfAnyLengthAreUnpackedUnchanged) {
  for (const std::size_t bytes : {1, 7, 63, 1000, 1200, 16384, 131073, 600000}) {
    const Bytes plane = make_plane(bytes);
    for (const bool nearly_constant : {false, true})
      EXPECT_TRUE(unpacks_to(pack(plane, nearly_constant), plane)) << bytes;
  }
}

// The expected size is two bits per byte plus the description of the codes.
TEST_F(PlanePackerTest, SkewedPlaneIsPackedNearItsEntropy) {
  const Bytes plane = make_plane(65536);
  EXPECT_LT(pack(plane).size(), plane.size() * 26 / 100);
}

TEST_F(PlanePackerTest, FrameOfEarlierBuildsIsUnpacked) {
  EXPECT_TRUE(unpacks_to(from_hex(kOfOwnCoder), make_plane(1200)));
}

TEST_F(PlanePackerTest, FrameLargerThanTheBufferIsNotWritten) {
  const Bytes plane = make_plane(65536);
  Bytes small(pack(plane).size() - 1);
  EXPECT_FALSE(packer_.pack(plane, false, small).has_value());
}

TEST_F(PlanePackerTest, TruncatedAndExtendedFramesAreRefused) {
  const Bytes plane = make_plane(4096);
  const Bytes frame = pack(plane);
  for (std::size_t bytes = 0; bytes < frame.size(); ++bytes)
    EXPECT_FALSE(unpacks_to(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes)), plane));
  Bytes longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(unpacks_to(longer, plane));
  Bytes shorter(plane.size() - 1), larger(plane.size() + 1);
  EXPECT_FALSE(packer_.unpack(frame, shorter));
  EXPECT_FALSE(packer_.unpack(frame, larger));
}

// A changed byte may decode to another plane of the same length, which fingerprints detect. The decoder
// writes nothing beyond the plane.
TEST_F(PlanePackerTest, DamagedFramesWriteNoBytesBeyondThePlane) {
  const Bytes plane = make_plane(4096);
  const Bytes frame = pack(plane);
  Bytes memory(plane.size() + 64, std::byte{0xa5});
  for (std::size_t i = 0; i < frame.size(); ++i) {
    Bytes damaged = frame;
    damaged[i] ^= std::byte{0x41};
    (void)packer_.unpack(damaged, std::span(memory).first(plane.size()));
    for (std::size_t at = plane.size(); at < memory.size(); ++at) ASSERT_EQ(memory[at], std::byte{0xa5}) << i;
  }
}

}  // namespace
}  // namespace ckpt::codec
