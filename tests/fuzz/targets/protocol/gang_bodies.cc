// SPDX-License-Identifier: Apache-2.0
// Messages, records and plans of moves of ranks: {which u8, body}. A decoded value survives encoding and
// decoding, and the properties that its users rely on are valid.
#include <algorithm>

#include "libckpt/protocol/gang/gang_plan.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

void check_message(Bytes bytes) {
  const auto message = wire::decode_commit(bytes);
  if (!message) return;
  const wire::CommitMessage& known = *message;
  FUZZ_CHECK(known.migration != 0 && known.job != 0 && known.from != known.to);
  FUZZ_CHECK(wire::has_body(known.kind, known.body));
  FUZZ_CHECK(!known.info || gang::check(*known.info).has_value());
  const auto again = wire::decode_commit(wire::encode_commit(known));
  FUZZ_CHECK(again.has_value() && *again == known);
}

void check_record(Bytes bytes) {
  const auto record = gang::GangRecords::decode(bytes);
  if (!record) return;
  const gang::Record& known = *record;
  FUZZ_CHECK(gang::check(known.info).has_value());
  FUZZ_CHECK(!gang::name_of(known).empty());
  const auto again = gang::GangRecords::decode(gang::GangRecords::encode(known));
  FUZZ_CHECK(again.has_value() && *again == known);
}

void check_plan(Bytes bytes) {
  const auto plan = gang::decode_gang_plan(bytes);
  if (!plan) return;
  const gang::GangPlan& known = *plan;
  FUZZ_CHECK(known.tickets.size() <= gang::kMaxGroups);
  FUZZ_CHECK(std::all_of(known.tickets.begin(), known.tickets.end(), [](const gang::GroupTicket& ticket) {
    return ticket.ticket.size() <= gang::kMaxTicketBytes && ticket.group.size() <= gang::kMaxGroupNameBytes;
  }));
  FUZZ_CHECK(gang::decode_gang_plan(wire::encode(known)).has_value());
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  if (size == 0) return 0;
  const auto body = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 3 == 0) check_message(body);
  if (data[0] % 3 == 1) check_record(body);
  if (data[0] % 3 == 2) check_plan(body);
  return 0;
}
