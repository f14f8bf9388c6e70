// SPDX-License-Identifier: Apache-2.0
// The target decodes packets between agent and mover. A decoded packet survives encoding and decoding.
#include "libckpt/protocol/wire/mover_messages.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::wire;
  const auto packet = std::as_bytes(std::span(data, size));
  const auto decoded = mover::decode_message(packet);
  if (!decoded) return 0;
  const mover::Message& message = *decoded;
  FUZZ_CHECK(mover::descriptors_of(message) <= mover::kMaxRegions);
  FUZZ_CHECK(!mover::name_of(message).empty());
  const auto once = mover::encode_message(message);
  FUZZ_CHECK(once.has_value());
  const auto again = mover::decode_message(*once);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(mover::encode_message(*again).value() == *once);
  return 0;
}
