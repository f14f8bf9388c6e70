// SPDX-License-Identifier: Apache-2.0
// Tests frames and bodies from a hostile peer: truncated, mutated, or with huge counts. No input may crash
// the decoder, allocate by a peer's number, or be accepted with a changed meaning.
#include "libckpt/protocol/wire/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::wire {
namespace {

std::vector<CommitMessage> of_a_handover() {
  const Reason reason(ErrorCode::kTimedOut, "late");
  const Bytes bytes(50, std::byte{9});
  const auto c = Role::kCoordinator;
  const auto s = Role::kSource;
  const auto t = Role::kTarget;
  return {
      {1, 2, 3, c, s, Prepare({RankPlace(0, "a", "0", "b", "1"), RankPlace(1, "a", "1", "b", "0")}, bytes)},
      {1, 2, 3, s, c, Prepared(bytes)},
      {1, 2, 3, t, c, Refused(reason)},
      {1, 2, 3, c, t, Start(bytes)},
      {1, 2, 3, s, c, Precopied{}},
      {1, 2, 3, c, s, Granted(4)},
      {1, 2, 3, s, c, Failed(reason)},
      {1, 2, 3, t, c, Verified{}},
      {1, 2, 3, c, t, Commit(4)},
      {1, 2, 3, t, c, LeaseRequest(4, 123)},
      {1, 2, 3, c, t, Lease(4, 123, 10'000)},
      {1, 2, 3, t, s, Committed(4)},
      {1, 2, 3, t, s, Ran(4)},
      {1, 2, 3, s, t, Released{}},
      {1, 2, 3, t, s, Relinquished(reason)},
      {1, 2, 3, c, t, GiveUp(reason)},
      {1, 2, 3, c, t, Aborted(reason)},
      {1, 2, 3, s, c, Resumed(3, true, true)},
      {1, 2, 3, c, s, Closed(Side::kTarget)},
      {1, 2, 3, s, t, Query(reason)},
  };
}

// Adds each body of a gang, with all members set, to `messages`.
template <std::size_t I = 0>
void add_of_a_gang(std::vector<CommitMessage>& messages) {
  if constexpr (I < std::variant_size_v<Body>) {
    Body body(std::in_place_index<I>);
    std::visit(
        [](auto& what) {
          if constexpr (requires { what.k; }) what.k = 4;
          if constexpr (requires { what.side; }) what.side = Side::kTarget;
          if constexpr (requires { what.dead; }) what.dead = true;
          if constexpr (requires { what.veto; }) what.veto = true;
          if constexpr (requires { what.owner; }) what.owner = true;
          if constexpr (requires { what.never_barrier; }) what.never_barrier = true;
          if constexpr (requires { what.give_up; }) what.give_up = true;
          if constexpr (requires { what.reason; }) what.reason = Reason(ErrorCode::kTimedOut, "late");
          if constexpr (requires { what.payload; }) what.payload = Bytes(50, std::byte{9});
          if constexpr (requires { what.sent_at_ns; }) what.sent_at_ns = 123;
          if constexpr (requires { what.term_ms; }) what.term_ms = 10'000;
        },
        body);
    if (has_body(CommitKind::kGang, body))
      messages.emplace_back(1, 2, 3, Party(Role::kSource, 2), Party(Role::kTarget, 1), std::move(body));
    add_of_a_gang<I + 1>(messages);
  }
}

GangInfo gang_info() {
  GangInfo info;
  info.migration = 1;
  info.gang = 2;
  info.base = 3;
  info.moved = {2};
  info.staying = {0, 1};
  info.overlaps = false;
  info.plan = Bytes(7, std::byte{5});
  info.communicators_ms = 77;
  return info;
}

std::vector<CommitMessage> examples() {
  std::vector<CommitMessage> all = of_a_handover();
  add_of_a_gang(all);
  CommitMessage described(gang_info(), Party(), Party(Role::kBystander, 0), Prepare{});
  described.info = gang_info();
  all.push_back(described);
  CommitMessage question(1, 2, 3, Party(Role::kBystander, 0), Party(), Query{});
  question.asks_for_info = true;
  all.push_back(question);
  CommitMessage times(1, 2, 3, Party(Role::kBystander, 0), Party(), Query{});
  times.times.emplace();
  times.times->pause_ns = 5;
  times.times->to_barrier_ns = 6;
  all.push_back(times);
  return all;
}

TEST(Codec, EveryMessageIsDecodedAsEncoded) {
  const auto all = examples();
  std::set<std::pair<CommitKind, std::size_t>> bodies;
  for (const auto& message : all) bodies.emplace(message.kind, message.body.index());
  EXPECT_EQ(bodies.size(), 20U + 35U);
  for (const auto& message : all) {
    auto again = decode_commit(encode_commit(message));
    ASSERT_TRUE(again.has_value()) << name_of(message.body) << ": " << again.error().to_string();
    EXPECT_EQ(*again, message);
  }
}

TEST(Codec, EveryTruncationAndExtensionIsRefused) {
  for (const auto& message : examples()) {
    auto bytes = encode_commit(message);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      EXPECT_FALSE(decode_commit(std::span(bytes).first(n)).has_value()) << name_of(message.body) << " " << n;
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_commit(bytes).has_value());
  }
}

TEST(Codec, MutatedMessagesAreRefusedOrWellFormed) {
  std::mt19937_64 random(7);
  const auto all = examples();
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = encode_commit(all[random() % all.size()]);
    for (std::uint64_t i = 0, n = 1 + random() % 4; i < n; ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    auto decoded = decode_commit(bytes);
    if (!decoded.has_value()) continue;
    EXPECT_TRUE(is_known(decoded->from.role));
    EXPECT_TRUE(is_known(decoded->to.role));
    EXPECT_TRUE(has_body(decoded->kind, decoded->body));
    // The encoding is shorter if a mutation claims a newer version: the decoder skips possible appended
    // fields.
    EXPECT_LE(encode_commit(*decoded).size(), bytes.size());
  }
}

struct Strings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(list, text, maybe, flag, side);
  }
  std::vector<std::string> list;
  std::string text;
  std::optional<std::uint32_t> maybe;
  bool flag = false;
  Side side = Side::kSource;
};

std::vector<std::byte> with_count(std::uint64_t count) {
  std::vector<std::byte> bytes = encode(Strings{});
  std::memcpy(bytes.data() + 1 + 6, &count,
              sizeof count);  // after the endianness byte and the envelope comes the list's count
  return bytes;
}

TEST(Codec, HugeCountsAllocateNoMemory) {
  for (const std::uint64_t count : {std::uint64_t{1} << 33, ~std::uint64_t{0}, std::uint64_t{1'000}}) {
    auto decoded = decode<Strings>(with_count(count));
    ASSERT_FALSE(decoded.has_value());
    EXPECT_EQ(decoded.error().code(), ErrorCode::kProtocol);
  }
  EXPECT_TRUE(decode<Strings>(with_count(0)).has_value());
}

TEST(Codec, EnumsAndBoolsAreValidated) {
  auto bytes = encode(Strings{});
  ASSERT_EQ(bytes.back(), std::byte{1});  // the byte of the side
  for (const int wrong : {0, 3, 255}) {
    bytes.back() = static_cast<std::byte>(wrong);
    EXPECT_FALSE(decode<Strings>(bytes).has_value()) << wrong;
  }
  bytes.back() = std::byte{2};
  EXPECT_TRUE(decode<Strings>(bytes).has_value());
  bytes[bytes.size() - 2] = std::byte{2};  // the byte of the flag
  EXPECT_FALSE(decode<Strings>(bytes).has_value());
}

struct Newer {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  Newer() = default;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(list, text, maybe, flag, side, extra);
  }
  std::vector<std::string> list{"x"};
  std::string text = "t";
  std::optional<std::uint32_t> maybe = 4;
  bool flag = true;
  Side side = Side::kTarget;
  std::string extra = "appended by version 2";
};
struct Incompatible : Newer {
  static constexpr std::uint8_t kVersion = 2, kCompat = 2;
  Incompatible() = default;
};

TEST(Codec, NewerVersionsAreReadIfMarkedCompatible) {
  auto old_reader = decode<Strings>(encode(Newer{}));
  ASSERT_TRUE(old_reader.has_value()) << old_reader.error().to_string();
  EXPECT_EQ(old_reader->text, "t");
  EXPECT_EQ(*old_reader->maybe, 4U);
  auto refused = decode<Strings>(encode(Incompatible{}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotSupported);
}

struct Outer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(inner, behind);
  }
  std::vector<Newer> inner;
  std::string behind;
};
struct OuterOfStrings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(inner, behind);
  }
  std::vector<Strings> inner;
  std::string behind;
};

TEST(Codec, FieldsMissingInOlderVersionsHaveTheirDefaults) {
  Strings old;
  old.text = "kept";
  auto read = decode<Newer>(encode(old));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->text, "kept");
  EXPECT_FALSE(read->maybe.has_value());
  EXPECT_EQ(read->extra, "appended by version 2");
  OuterOfStrings nested;
  nested.inner.resize(2);
  nested.inner[1].text = "second";
  nested.behind = "behind";
  auto whole = decode<Outer>(encode(nested));
  ASSERT_TRUE(whole.has_value()) << whole.error().to_string();
  EXPECT_EQ(whole->inner.at(1).text, "second");
  EXPECT_EQ(whole->behind, "behind");
}

struct SecondWithSide {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(side, extra);
  }
  Side side = Side::kInvalid;
  std::string extra;
};
struct FirstWithoutSide {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  template <class A>
  void fields(A&) {}
};

TEST(Codec, AnOlderVersionWithoutARequiredEnumIsRefused) {
  const auto read = decode<SecondWithSide>(encode(FirstWithoutSide{}));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), ErrorCode::kProtocol);
}

TEST(Codec, AnOlderVersionThatEndsInsideAFieldIsRefused) {
  Strings old;
  old.list = {"a"};
  std::vector<std::byte> bytes = encode(old);
  // The list announces two elements, and the struct ends after the first.
  const std::uint64_t two = 2;
  const std::size_t list_at = 1 + 6;
  const std::size_t first_ends = list_at + 8 + 8 + 1;
  std::memcpy(bytes.data() + list_at, &two, sizeof two);
  bytes.resize(first_ends);
  const auto size = static_cast<std::uint32_t>(first_ends - list_at);
  std::memcpy(bytes.data() + 3, &size, sizeof size);
  EXPECT_FALSE(decode<Newer>(bytes).has_value());
  // A struct of this version must not end early either.
  EXPECT_FALSE(decode<Strings>(bytes).has_value());
}

TEST(Codec, InvalidHandoverMessagesAreRefused) {
  const auto refused = [](const CommitMessage& m) { return !decode_commit(encode_commit(m)).has_value(); };
  const auto c = Role::kCoordinator;
  const auto t = Role::kTarget;
  EXPECT_TRUE(refused({0, 2, 3, c, t, Commit(4)}));
  EXPECT_TRUE(refused({1, 0, 3, c, t, Commit(4)}));
  EXPECT_TRUE(refused({1, 2, 3, t, t, Commit(4)}));
  EXPECT_TRUE(refused({1, 2, 3, c, t, Commit(5)}));  // this parity belongs to the source
  EXPECT_TRUE(refused({1, 2, 3, c, t, Commit(2)}));  // lower than the migration's base
  EXPECT_TRUE(refused({1, 2, 3, static_cast<Role>(0), t, Commit(4)}));
  EXPECT_TRUE(refused({1, 2, 3, c, Role::kBystander, Query()}));
  EXPECT_TRUE(refused({1, 2, 3, c, t, Withdraw()}));  // only gangs use Withdraw
  const auto changed = [&](const auto& change) {
    CommitMessage m(1, 2, 3, c, t, Commit(4));
    change(m);
    return refused(m);
  };
  EXPECT_FALSE(changed([](CommitMessage&) {}));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.kind = static_cast<CommitKind>(0); }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.kind = static_cast<CommitKind>(3); }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.kind = CommitKind::kGang; }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.to.rank = 1; }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.from.rank = 1; }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.info = gang_info(); }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.asks_for_info = true; }));
  EXPECT_TRUE(changed([](CommitMessage& m) { m.times.emplace(); }));
}

TEST(Codec, UnknownBodiesAreRefused) {
  const Party rank(Role::kSource, 2);
  const auto bytes = encode_commit(CommitMessage(1, 2, 3, rank, Party(), Precopied{}));
  const auto other = encode_commit(CommitMessage(1, 2, 3, rank, Party(), Released{}));
  ASSERT_EQ(bytes.size(), other.size());
  // Bodies without members differ in their number alone.
  const auto number = std::mismatch(bytes.begin(), bytes.end(), other.begin()).first - bytes.begin();
  const auto refused = [&](std::size_t body) {
    auto changed = bytes;
    changed.at(static_cast<std::size_t>(number)) = static_cast<std::byte>(body);
    return !decode_commit(changed).has_value();
  };
  EXPECT_FALSE(refused(Body(Released{}).index() + 1));
  EXPECT_TRUE(refused(0));
  EXPECT_TRUE(refused(std::variant_size_v<Body> + 1));
  EXPECT_TRUE(refused(200));
}

TEST(Frames, RetiredFrameNumbersOfTheCommitsAreUnknown) {
  for (const std::uint16_t former : {1, 2}) EXPECT_FALSE(is_known(static_cast<FrameType>(former)));
}

TEST(Frames, HeadersAreValidatedWithoutTheBody) {
  const auto body = encode_commit(examples().front());
  auto frame = make_frame(FrameType::kCommit, 77, body);
  ASSERT_TRUE(frame.has_value());
  auto bytes = *std::move(frame);
  const auto head = std::span(bytes).first(kFrameHeaderBytes);
  auto header = parse_header(head);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->sequence, 77U);
  EXPECT_EQ(header->body_bytes, body.size());
  EXPECT_TRUE(check_body(*header, body).has_value());

  for (std::size_t i = 0; i < 8; ++i) {  // magic, version and type
    auto broken = bytes;
    broken[i] ^= std::byte{0x80};
    EXPECT_FALSE(parse_header(std::span(broken).first(kFrameHeaderBytes)).has_value()) << i;
  }
  auto huge = bytes;
  const std::uint32_t length = 0x7fff'ffff;
  std::memcpy(huge.data() + 8, &length, sizeof length);
  EXPECT_FALSE(parse_header(std::span(huge).first(kFrameHeaderBytes)).has_value());
  for (std::size_t i = 0; i < body.size(); i += 7) {
    auto damaged = body;
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(check_body(*header, damaged).has_value());
  }
  EXPECT_FALSE(parse_header(std::span(bytes).first(23)).has_value());
  const std::vector<std::byte> too_long(max_body_bytes(FrameType::kCommit) + 1);
  EXPECT_FALSE(make_frame(FrameType::kCommit, 1, too_long).has_value());
}

// Returns a spec of exactly the maximum size.
JobSpec largest_spec() {
  JobSpec spec;
  spec.argv = {"/bin/train"};
  spec.ranks.resize(1);
  const auto fill = [&](std::size_t bytes) { spec.env = {"PAD=" + std::string(bytes, 'x')}; };
  fill(kMaxJobSpecBytes / 2);
  fill(kMaxJobSpecBytes / 2 + kMaxJobSpecBytes - encode(spec).size());
  return spec;
}

template <class Message>
void expect_fits(const Message& message) {
  const auto body = encode(message);
  EXPECT_TRUE(make_frame(Message::kFrame, 1, body).has_value())
      << body.size() << " bytes, frame type " << static_cast<int>(Message::kFrame);
}

TEST(Frames, LargestSpecFitsIntoEveryMessageAboutAJob) {
  const JobSpec spec = largest_spec();
  ASSERT_EQ(encode(spec).size(), kMaxJobSpecBytes);
  const std::string path(4096, 'p');
  StartJob start;
  start.spec = spec;
  expect_fits(start);
  TakeSnapshot snapshot;
  snapshot.spec = spec;
  snapshot.folder = path;
  expect_fits(snapshot);
  RestoreImage restore;
  restore.spec = spec;
  restore.folder = path;
  expect_fits(restore);
  ImageFacts facts;
  facts.spec = spec;
  expect_fits(facts);
  MigrationPlan plan;
  plan.spec = spec;
  const auto encoded = encode_commit(
      CommitMessage(1, 2, 3, Role::kCoordinator, Role::kSource, Body(Prepare({}, encode(plan)))));
  EXPECT_TRUE(make_frame(FrameType::kCommit, 1, encoded).has_value());
}

TEST(Frames, CrcIsTheStandardCrc32) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(text))), 0xcbf4'3926U);
}

}  // namespace
}  // namespace ckpt::wire
