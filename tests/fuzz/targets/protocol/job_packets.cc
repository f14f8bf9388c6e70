// SPDX-License-Identifier: Apache-2.0
// Datagrams between a job's rank, its keeper and the agent: {number of descriptors u8, bytes}. A rank is an
// untrusted program.
#include "libckpt/inprocess/local/messages.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  fuzz::Input input(data, size);
  const std::size_t descriptors = input.number<std::uint8_t>();
  const auto bytes = input.rest();
  const auto parsed = local::parse(bytes, descriptors);
  if (!parsed) return 0;
  const auto once = local::encode(*parsed);
  // A parsed packet encodes to exactly these bytes: nothing is skipped, nothing is added.
  FUZZ_CHECK(once.has_value());
  FUZZ_CHECK(std::equal(bytes.begin(), bytes.end(), once->begin(), once->end()));
  return 0;
}
