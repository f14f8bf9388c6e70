// SPDX-License-Identifier: Apache-2.0
// Frames of the control connections: {type u16, body}. A decoded message must survive encoding and decoding,
// and must not have grown. A message cannot be larger than its bytes.
#include <vector>

#include "libckpt/protocol/wire/commit_messages.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/seeds/control_frame_list.h"

namespace ckpt::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

template <class M>
void check_message(Bytes body) {
  const auto decoded = wire::decode<M>(body);
  if (!decoded) return;
  const auto once = wire::encode(*decoded);
  // The encoding may be longer than `body`: fields that an older version left out are now present.
  const auto again = wire::decode<M>(once);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(wire::encode(*again) == once);
}

void check_plan(Bytes bytes) {
  const auto plan = wire::decode_plan(bytes);
  if (!plan) return;
  FUZZ_CHECK(plan->fingerprint_key.size() == wire::kFingerprintKeyBytes);
  FUZZ_CHECK(plan->session_token.size() == wire::kSessionTokenBytes);
  FUZZ_CHECK(!plan->spec.ranks.empty());
  FUZZ_CHECK(wire::decode_plan(wire::encode(*plan)).has_value());
}

void check_commit(Bytes body) {
  const auto decoded = wire::decode_commit(body);
  if (!decoded) return;
  const wire::CommitMessage& message = *decoded;
  FUZZ_CHECK(message.migration != 0 && message.job != 0 && message.from != message.to);
  const auto again = wire::decode_commit(wire::encode_commit(message));
  FUZZ_CHECK(again.has_value() && *again == message);
  const bool has_ranks = message.from.rank != 0 || message.to.rank != 0;
  FUZZ_CHECK(wire::has_body(message.kind, message.body));
  FUZZ_CHECK(message.kind == wire::CommitKind::kGang || !(has_ranks || message.info || message.times));
  if (const auto* prepare = std::get_if<wire::Prepare>(&message.body)) check_plan(prepare->plan);
}

struct Kind {
  wire::FrameType type;
  void (*check)(Bytes);
};
// Returns the kinds of frames, of which the first two input bytes select one: the commit frame, then those of
// ControlMessages.
std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds{{wire::FrameType::kCommit, check_commit}};
  ControlMessages::for_each([&]<class M>() { kinds.push_back({M::kFrame, check_message<M>}); });
  return kinds;
}

void check_frame(const Kind& kind, Bytes body) {
  const auto frame = wire::make_frame(kind.type, 1, body);
  FUZZ_CHECK(frame.has_value() == (body.size() <= wire::max_body_bytes(kind.type)));
  if (!frame) return;
  const Bytes bytes = *frame;
  const auto header = wire::parse_header(bytes.first(wire::kFrameHeaderBytes));
  FUZZ_CHECK(header.has_value());
  FUZZ_CHECK(header->type == kind.type && header->body_bytes == body.size());
  FUZZ_CHECK(wire::check_body(*header, body).has_value());
  if (!body.empty()) FUZZ_CHECK(!wire::check_body(*header, body.first(body.size() - 1)));
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  const auto all = std::as_bytes(std::span(data, size));
  if (all.size() >= wire::kFrameHeaderBytes) {
    const auto header = wire::parse_header(all.first(wire::kFrameHeaderBytes));
    if (header) {
      FUZZ_CHECK(wire::is_known(header->type));
      FUZZ_CHECK(header->body_bytes <= wire::max_body_bytes(header->type));
      (void)wire::check_body(*header, all.subspan(wire::kFrameHeaderBytes));
    }
  }
  fuzz::Input input(data, size);
  static const auto kinds = fuzz::all_kinds();
  const fuzz::Kind& kind = kinds[input.number<std::uint16_t>() % kinds.size()];
  const auto body = input.rest();
  fuzz::check_frame(kind, body);
  kind.check(body);
  return 0;
}
