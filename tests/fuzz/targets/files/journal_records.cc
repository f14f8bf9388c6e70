// SPDX-License-Identifier: Apache-2.0
// The target decodes bodies of journal records. A decoded record survives encoding and decoding.
#include "libckpt/protocol/handover/records.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto record = migration::decode_record(bytes);
  if (!record) return 0;
  FUZZ_CHECK(migration::is_known(record->kind));
  const auto once = migration::encode_record(*record);
  FUZZ_CHECK(once.size() <= bytes.size());
  const auto again = migration::decode_record(once);
  FUZZ_CHECK(again.has_value() && *again == *record);
  return 0;
}
