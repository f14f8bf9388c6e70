// SPDX-License-Identifier: Apache-2.0
// Planes that Huffman packed: {length of the plane u16, frame}. What our own decoder takes is what zstd makes
// of it, and does not depend on what lay in the plane before; the same bytes taken as a plane survive being
// packed.
#include <vector>

#include "libckpt/datapath/codec/huffman/huffman_frame.h"
#include "libckpt/datapath/codec/plane_packer.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kMaxPlaneBytes = 1 << 16;

codec::PlanePacker& packer() {
  static auto made = codec::PlanePacker::create(kMaxPlaneBytes).value();
  return made;
}
codec::HuffmanFrames& frames() {
  static const auto made = codec::HuffmanFrames::create().value();
  return *made;
}

void check_decode(Bytes frame, std::size_t length) {
  std::vector<std::byte> first(length, std::byte{1}), second(length, std::byte{2}), by_zstd(length);
  const bool taken = frames().decode(frame, first);
  FUZZ_CHECK(frames().decode(frame, second) == taken);
  if (!taken) return;
  FUZZ_CHECK(first == second);
  // zstd asks more of a frame: how large its window is, how deep its tree.
  if (packer().unpack_by_zstd(frame, by_zstd)) FUZZ_CHECK(first == by_zstd);
}

void check_round_trip(Bytes plane) {
  std::vector<std::byte> frame(plane.size() + 1024), back(plane.size());
  const auto size = packer().pack(plane, false, frame);
  FUZZ_CHECK(size.has_value());
  FUZZ_CHECK(packer().unpack(Bytes(frame).first(*size), back));
  FUZZ_CHECK(std::equal(back.begin(), back.end(), plane.begin(), plane.end()));
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  if (!codec::HuffmanFrames::supported()) return 0;
  fuzz::Input input(data, size);
  const std::size_t length = input.number<std::uint16_t>();
  const auto bytes = input.rest();
  fuzz::check_decode(bytes, length);
  fuzz::check_round_trip(bytes.first(std::min(bytes.size(), fuzz::kMaxPlaneBytes)));
  return 0;
}
