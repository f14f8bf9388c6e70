// SPDX-License-Identifier: Apache-2.0
// Packets between the agent and the process that loads the driver: {whose u8, bytes}. An accepted packet
// means exactly these bytes, and all values that its user reads are in range.
#include "agent/context_helper/messages.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using namespace agent::context;

template <class Value>
void check_encoding(const Value& value, std::span<const std::byte> bytes,
                    Result<Value> (*parse)(std::span<const std::byte>)) {
  const auto once = wire::encode(value);
  FUZZ_CHECK(once.size() <= bytes.size());
  const auto again = parse(once);
  FUZZ_CHECK(again.has_value() && wire::encode(*again) == once);
}

void check_order(std::span<const std::byte> bytes) {
  const auto order = parse_order(bytes);
  if (!order) return;
  check_encoding(*order, bytes, parse_order);
  FUZZ_CHECK(order->pid > 0 && order->pairs.size() <= kMaxPairs);
  FUZZ_CHECK(std::string_view(name_of(order->kind)) != "unknown");
}

void check_answer(std::span<const std::byte> bytes) {
  const auto answer = parse_answer(bytes);
  if (!answer) return;
  check_encoding(*answer, bytes, parse_answer);
  const Answer& a = *answer;
  FUZZ_CHECK(std::string_view(name_of(a.kind)) != "unknown");
  if (a.kind == Kind::kState && a.code == 0)
    FUZZ_CHECK(std::string_view(name_of(static_cast<ProcessState>(a.value))) != "unknown");
  if (a.code == 0) return;
  const Error error = error_of(a);
  FUZZ_CHECK(static_cast<int>(error.code()) == a.code);
  Answer again;
  set_error(again, error);
  FUZZ_CHECK(again.code == a.code && again.text.size() <= kMaxText);
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
