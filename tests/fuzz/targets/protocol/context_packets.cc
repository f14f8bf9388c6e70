// SPDX-License-Identifier: Apache-2.0
// Packets between the agent and the process that loads the driver: {whose u8, bytes}. What passes means
// exactly these bytes, and all that its user looks at is in range.
#include "agent/context_helper/messages.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using namespace agent::context;

template <class Value>
void check_bytes(const Value& value, std::span<const std::byte> bytes) {
  const auto again = to_bytes(value);
  FUZZ_CHECK(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

void check_order(std::span<const std::byte> bytes) {
  const auto order = parse_order(bytes);
  if (!order) return;
  check_bytes(order.assume_value(), bytes);
  FUZZ_CHECK(order.assume_value().pid > 0 && order.assume_value().pair_count <= kMaxPairs);
  FUZZ_CHECK(std::string_view(name_of(order.assume_value().kind)) != "unknown");
}

void check_answer(std::span<const std::byte> bytes) {
  const auto answer = parse_answer(bytes);
  if (!answer) return;
  check_bytes(answer.assume_value(), bytes);
  const Answer& a = answer.assume_value();
  FUZZ_CHECK(std::string_view(name_of(a.kind)) != "unknown");
  if (a.kind == Kind::kState && a.code == 0)
    FUZZ_CHECK(std::string_view(name_of(static_cast<ProcessState>(a.value))) != "unknown");
  if (a.code == 0) return;
  const Error error = error_of(a);
  FUZZ_CHECK(static_cast<int>(error.code()) == a.code);
  Answer again;
  set_error(again, error);
  FUZZ_CHECK(again.code == a.code && again.text_bytes <= kMaxText);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  Input input(data, size);
  const bool is_answer = input.number<std::uint8_t>() % 2 != 0;
  is_answer ? check_answer(input.rest()) : check_order(input.rest());
  return 0;
}
