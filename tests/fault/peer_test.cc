// SPDX-License-Identifier: Apache-2.0
// Tests of a confused or hostile peer. Each message that no correct peer sends ends the session with its
// reason, on both sides. Nothing counts as arrived or verified. A message that may be an old message of a
// correct peer is ignored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "libckpt/datapath/engine/target/receiver_core.h"
#include "tests/fault/fault_injecting_transport.h"
#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine {
namespace {

using test::Arrival;
using test::Bytes;
using test::EnginePair;
using test::FaultInjectingTransport;
using test::Headers;
using test::kKiB;
using test::kMiB;
using testing::HasSubstr;

constexpr auto kSource = Arrival::At::kSource;
constexpr auto kTarget = Arrival::At::kTarget;
constexpr std::uint32_t kFarChunk = 1U << 20;
constexpr auto kZero = static_cast<std::uint8_t>(codec::Encoding::kZero);

LaneHeader header_of(std::span<const std::byte> bytes) {
  LaneHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

// Returns a copy of the message whose header `change` has changed.
template <class Change>
Bytes with_header(Bytes bytes, Change change) {
  LaneHeader header = header_of(bytes);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}
template <class Record, class Change>
Bytes with_record(Bytes bytes, Change change) {
  auto record = record_at<Record>(bytes);
  change(record);
  std::memcpy(bytes.data() + sizeof(LaneHeader), &record, sizeof record);
  return bytes;
}
// Returns a message of the same session and round.
template <class... Records>
Bytes made(const Bytes& like, LaneMessage type, const Records&... records) {
  const LaneHeader header = header_of(like);
  LaneBuffer message(type, {header.migration, header.incarnation, header.rank}, header.round);
  (message.append(records), ...);
  const auto bytes = message.bytes();
  return {bytes.begin(), bytes.end()};
}

// Returns the message with the slot and sequence of `like`.
Bytes placed_as(const Bytes& message, const Bytes& like) {
  return with_header(message, [&like](LaneHeader& h) {
    h.slot = header_of(like).slot;
    h.sequence = header_of(like).sequence;
  });
}

class Nobody final : public ReceiverDelegate {
  Result<PlanPlaces> on_plan(std::span<const std::byte>) override { return PlanPlaces{}; }
  Result<void> on_manifest(std::span<const std::byte>, const track::Fingerprint&,
                           const ReceivedHostState&) override {
    return ok();
  }
  void on_verified(const VerifiedReport&, ReceivedHostState) override {}
  void on_failed(const Error&) override {}
};

struct Wrong {
  const char* name;
  Arrival::At at;
  LaneMessage type;  // the type of the message that is replaced: the first of this type to arrive
  std::function<Headers(const Bytes&)> becomes;
  const char* text;  // the reason with which the replaced message ends the session
};
void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << wrong.name;
}

// Runs a move: plan, a measurement on every lane, a round, the final round with host state, and the verdict.
// Returns the first error.
Result<void> move(EnginePair& pair) {
  CKPT_TRYV(pair.try_announce());
  CKPT_TRYV(pair.sender().measure_link());
  CKPT_TRYV(pair.sender().run_round());
  pair.source().fill(64 * kKiB, 100, 0x7E);  // changes memory for the final round
  static const Bytes host_state = test::random_bytes(300 * kKiB, 3);
  CKPT_TRYV(pair.sender().run_final(host_state));
  CKPT_TRYV(pair.commit());
  return ok();
}

// Returns a function that replaces only the first message of this kind, of all lanes.
test::Tamper first_of(Arrival::At at, LaneMessage type, std::function<Headers(const Bytes&)> becomes) {
  return [=, seen = std::make_shared<std::atomic<bool>>(false)](const Arrival& arrival) {
    if (arrival.at == at && header_of(arrival.header).type == type && !seen->exchange(true))
      return becomes(arrival.bytes());
    return Headers{arrival.bytes()};
  };
}

class MisbehavingPeer : public testing::TestWithParam<Wrong> {};

TEST_P(MisbehavingPeer, AWrongMessageEndsTheSessionWithItsReason) {
  const Wrong& wrong = GetParam();
  for (const bool same_host : {false, true}) {
    SCOPED_TRACE(same_host ? "near" : "far");
    FaultInjectingTransport transport(first_of(wrong.at, wrong.type, wrong.becomes));
    EnginePair pair(
        {.lanes = 1, .codec = codec::CodecMode::kRaw, .transport = &transport, .same_host = same_host});
    pair.source().write(0, test::random_bytes(4 * kMiB, 1));
    const auto moved = move(pair);
    ASSERT_FALSE(moved.has_value());
    EXPECT_THAT(moved.error().to_string(), HasSubstr(wrong.text));
    if (wrong.at != kTarget) continue;
    EXPECT_NE(pair.wait_failed().code(), ErrorCode::kInternal);
    EXPECT_FALSE(pair.verified);
  }
}

Wrong acknowledgement(const char* name, std::function<void(AckRecord&)> change, const char* text) {
  return {name, kSource, LaneMessage::kAck,
          [change](const Bytes& ack) { return Headers{with_record<AckRecord>(ack, change)}; }, text};
}
Wrong chunk(const char* name, std::function<void(ChunkRecord&)> change, const char* text) {
  return {name, kTarget, LaneMessage::kChunks,
          [change](const Bytes& chunks) { return Headers{with_record<ChunkRecord>(chunks, change)}; }, text};
}
Wrong header(const char* name, Arrival::At at, LaneMessage type, std::function<void(LaneHeader&)> change,
             const char* text) {
  return {name, at, type, [change](const Bytes& bytes) { return Headers{with_header(bytes, change)}; }, text};
}

constexpr const char* kNotSent = "The target acknowledged a message that was not sent";

INSTANTIATE_TEST_SUITE_P(
    Target, MisbehavingPeer,
    testing::Values(
        header(
            "sequence", kSource, LaneMessage::kAck, [](LaneHeader& h) { ++h.sequence; }, kNotSent),
        header(
            "slot", kSource, LaneMessage::kAck, [](LaneHeader& h) { h.slot = 1000; },
            "a slot that does not exist"),
        Wrong{"twice", kSource, LaneMessage::kAck,
              [](const Bytes& ack) {
                return Headers{ack, ack};
              },
              kNotSent},
        Wrong{"count", kSource, LaneMessage::kAck,
              [](const Bytes& ack) {
                const auto one = record_at<AckRecord>(ack);
                const Bytes other = header_of(ack).count == 1 ? made(ack, LaneMessage::kAck, one, one)
                                                              : made(ack, LaneMessage::kAck, one);
                return Headers{placed_as(other, ack)};
              },
              kNotSent},
        Wrong{"calibration", kSource, LaneMessage::kAck,
              [](const Bytes& ack) { return Headers{placed_as(made(ack, LaneMessage::kCalibrateAck), ack)}; },
              kNotSent},
        acknowledgement(
            "chunk", [](AckRecord& r) { r.chunk ^= 1; }, "acknowledged different chunks than were sent"),
        acknowledgement(
            "region", [](AckRecord& r) { ++r.region; }, "acknowledged different chunks than were sent"),
        acknowledgement(
            "generation", [](AckRecord& r) { ++r.generation; },
            "acknowledged different chunks than were sent"),
        acknowledgement(
            "gone", [](AckRecord& r) { r.gone = 1; }, "no longer has extent 1"),
        Wrong{"pong", kSource, LaneMessage::kAck,
              [](const Bytes& ack) {
                return Headers{made(ack, LaneMessage::kPong, ClockRecord{1}), ack};
              },
              "a pong without a ping"},
        Wrong{"role", kSource, LaneMessage::kAck,
              [](const Bytes& ack) { return Headers{made(ack, LaneMessage::kFinal)}; },
              "that only a source sends"},
        header(
            "migration", kSource, LaneMessage::kAck, [](LaneHeader& h) { ++h.migration; },
            "of another migration"),
        header(
            "incarnation", kSource, LaneMessage::kAck, [](LaneHeader& h) { --h.incarnation; },
            "of another migration"),
        header(
            "rank", kSource, LaneMessage::kAck, [](LaneHeader& h) { ++h.rank; }, "of another migration"),
        header(
            "magic", kSource, LaneMessage::kAck, [](LaneHeader& h) { h.magic ^= 1; }, "different builds"),
        Wrong{"cut", kSource, LaneMessage::kAck,
              [](const Bytes& ack) { return Headers{Bytes(ack.begin(), ack.end() - 1)}; },
              "length that does not match"},
        Wrong{"stale", kSource, LaneMessage::kScanDone,
              [](const Bytes& done) {
                AckRecord far;
                far.region = far.generation = 1;
                far.chunk = kFarChunk;
                return Headers{made(done, LaneMessage::kStale, far), done};
              },
              "a chunk that does not exist"},
        Wrong{"root", kSource, LaneMessage::kVerdict,
              [](const Bytes& verdict) {
                return Headers{with_record<VerdictRecord>(verdict, [](VerdictRecord& r) { ++r.root.lo; })};
              },
              "verified a different root than the source sent"},
        Wrong{"no", kSource, LaneMessage::kVerdict,
              [](const Bytes& verdict) {
                return Headers{with_record<VerdictRecord>(verdict, [](VerdictRecord& r) { r.code = 1; })};
              },
              "The target could not verify"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Source, MisbehavingPeer,
    testing::Values(
        chunk(
            "chunk", [](ChunkRecord& r) { r.chunk = kFarChunk; }, "A chunk lies beyond its extent"),
        chunk(
            "encoding", [](ChunkRecord& r) { r.encoding = 200; }, "A chunk has encoding 200"),
        chunk(
            "longer", [](ChunkRecord& r) { r.bytes = 1U << 30; }, "does not match its message"),
        chunk(
            "shorter", [](ChunkRecord& r) { --r.bytes; }, "length does not match its place"),
        chunk(
            "zero", [](ChunkRecord& r) { r.encoding = kZero; }, "does not match its message"),
        chunk(
            "nothing", [](ChunkRecord& r) { r = {r.region, r.generation, r.chunk, 0, kZero, {}}; },
            "that belong to no chunk"),
        chunk(
            "region", [](ChunkRecord& r) { ++r.region; }, "acknowledged different chunks"),
        Wrong{"early", kTarget, LaneMessage::kPlan,
              [](const Bytes& plan) {
                ChunkRecord record;
                record.encoding = static_cast<std::uint8_t>(codec::Encoding::kRaw);
                record.bytes = static_cast<std::uint32_t>(record_at<BlobRecord>(plan).total);
                return Headers{made(plan, LaneMessage::kChunks, record)};
              },
              "chunks before a plan"},
        Wrong{"role", kTarget, LaneMessage::kChunks,
              [](const Bytes& chunks) {
                return Headers{chunks, made(chunks, LaneMessage::kScanDone, ClockRecord{})};
              },
              "that only a target sends"},
        Wrong{"offset", kTarget, LaneMessage::kPlan,
              [](const Bytes& plan) {
                return Headers{with_record<BlobRecord>(plan, [](BlobRecord& r) { r.offset = 8; })};
              },
              "The connection to the target's mover is lost"},
        Wrong{"finals", kTarget, LaneMessage::kFinal,
              [](const Bytes& last) {
                return Headers{last, last};
              },
              "or for a second time"},
        Wrong{"unverified", kTarget, LaneMessage::kVerify, [](const Bytes&) { return Headers{}; },
              "A final round began before a verification"},
        Wrong{"verify", kTarget, LaneMessage::kVerify,
              [](const Bytes& verify) {
                return Headers{verify, with_header(verify, [](LaneHeader& h) { h.round = 0; })};
              },
              "or during another verification"},
        Wrong{"manifest", kTarget, LaneMessage::kVerify,
              [](const Bytes& verify) {
                return Headers{made(verify, LaneMessage::kManifest, BlobRecord{}), verify};
              },
              "A manifest arrived before the final round ended"},
        Wrong{"root", kTarget, LaneMessage::kManifest,
              [](const Bytes& manifest) {
                return Headers{with_record<BlobRecord>(manifest, [](BlobRecord& r) { ++r.root.hi; })};
              },
              "the roots over all chunks differ"},
        Wrong{"plan", kTarget, LaneMessage::kFinal,
              [](const Bytes& last) {
                return Headers{last, made(last, LaneMessage::kPlan, BlobRecord{})};
              },
              "A plan arrived after the final round began"},
        Wrong{"reservation", kTarget, LaneMessage::kVerify,
              [](const Bytes& verify) {
                return Headers{
                    made(verify, LaneMessage::kHostMemory, HostMemoryRecord{std::uint64_t{1} << 60, 0}),
                    verify};
              },
              "too long, or was announced twice"}),
    [](const auto& info) { return std::string(info.param.name); });

// Returns the error of a move; "none" if it succeeds. The move's first three chunks, the last of them short,
// stay in the source's staging memory. `becomes` replaces their headers.
std::string error_of_near_move(const std::function<Headers(const Bytes&)>& becomes) {
  FaultInjectingTransport transport(first_of(kTarget, LaneMessage::kChunks, becomes));
  EnginePair pair({.sizes = {164 * kKiB},
                   .lanes = 1,
                   .codec = codec::CodecMode::kRaw,
                   .transport = &transport,
                   .same_host = true});
  pair.source().write(0, test::random_bytes(164 * kKiB, 1));
  const auto moved = move(pair);
  return moved.has_value() ? "none" : moved.error().to_string();
}

// A decoder reads its input more than once, and the source may change its staged data at any time.
TEST(MisbehavingPeer, EncodedChunksInPeerMemoryAreRefused) {
  for (const auto encoding :
       {codec::Encoding::kBlocks, codec::Encoding::kPlanes4, codec::Encoding::kDifference4}) {
    const auto encoded = [encoding](const Bytes& chunks) {
      auto second = record_at<ChunkRecord>(chunks, 1);
      auto last = record_at<ChunkRecord>(chunks, 2);
      std::swap(second.bytes, last.bytes);  // an encoded chunk is shorter than the chunk
      second.encoding = static_cast<std::uint8_t>(encoding);
      last.chunk = 0;
      return Headers{placed_as(
          made(chunks, LaneMessage::kChunks, record_at<ChunkRecord>(chunks), second, last), chunks)};
    };
    EXPECT_THAT(error_of_near_move(encoded), HasSubstr("in memory that it may change while"));
  }
}

TEST(MisbehavingPeer, MessagesOtherThanChunksInPeerMemoryAreRefused) {
  for (const auto type : {LaneMessage::kPlan, LaneMessage::kHostState, LaneMessage::kManifest}) {
    const auto blob = [type](const Bytes& chunks) {
      BlobRecord record;
      record.total = 164 * kKiB;
      return Headers{made(chunks, type, record)};
    };
    EXPECT_THAT(error_of_near_move(blob), HasSubstr("that contains no chunks"));
  }
}

TEST(MisbehavingPeer, ASecondOrOversizedMemoryFileIsRefused) {
  Nobody nobody;
  ReceiverCore core(test::device(1), {42, 2, 0},
                    track::FingerprintParams::expand({}, track::FingerprintPurpose::kRoot), nobody, nullptr,
                    kMiB, kMiB);
  EXPECT_FALSE(core.pin_source_memory(test::must(make_memory_file("large", 2 * kMaxSourceBytes)),
                                      2 * kMaxSourceBytes));
  UniqueFd file = test::must(make_memory_file("source", kMiB));
  UniqueFd again(::dup(file.get()));
  UniqueFd longer(::dup(file.get()));
  const auto pinned = test::must(core.pin_source_memory(std::move(file), kMiB));
  EXPECT_EQ(pinned.size(), kMiB);
  EXPECT_EQ(test::must(core.pin_source_memory(std::move(again), kMiB)).data(), pinned.data());
  EXPECT_FALSE(core.pin_source_memory(std::move(longer), kMiB / 2));
  EXPECT_FALSE(core.pin_source_memory(test::must(make_memory_file("another", kMiB)), kMiB));
}

TEST(MisbehavingPeer, ThreeWrongAcknowledgementsOfAChunkEndTheSession) {
  FaultInjectingTransport transport([](const Arrival& arrival) {
    Bytes bytes = arrival.bytes();
    if (arrival.at == kSource && header_of(bytes).type == LaneMessage::kAck)
      bytes = with_record<AckRecord>(bytes, [](AckRecord& r) { ++r.fingerprint.lo; });
    return Headers{bytes};
  });
  EnginePair pair({.transport = &transport});
  const auto moved = move(pair);
  ASSERT_FALSE(moved.has_value());
  EXPECT_EQ(moved.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(moved.error().to_string(), HasSubstr("arrived wrong 3 times"));
}

TEST(MisbehavingPeer, ControlMessagesOnADataLaneEndTheSession) {
  std::atomic<bool> seen = false;
  FaultInjectingTransport transport([&seen](const Arrival& arrival) {
    Headers headers{arrival.bytes()};
    if (arrival.at == kTarget && arrival.lane == 1 && !seen.exchange(true))
      headers.push_back(made(headers.front(), LaneMessage::kVerify));
    return headers;
  });
  EnginePair pair({.transport = &transport});
  const auto moved = move(pair);
  ASSERT_FALSE(moved.has_value());
  EXPECT_THAT(moved.error().to_string(),
              HasSubstr("sent a message on another lane that belongs on the first lane"));
}

TEST(MisbehavingPeer, AMissingPieceOfTheHostStateIsRefused) {
  FaultInjectingTransport transport([](const Arrival& arrival) {
    Bytes bytes = arrival.bytes();
    if (arrival.at == kTarget && header_of(bytes).type == LaneMessage::kHostState)
      bytes = with_record<BlobRecord>(bytes, [](BlobRecord& r) { r.offset += r.offset > 0 ? 4 * kKiB : 0; });
    return Headers{bytes};
  });
  const Bytes host_state = test::random_bytes(5 * kMiB, 3);
  EnginePair pair({.transport = &transport});
  pair.announce();
  EXPECT_FALSE(pair.sender().run_final(host_state).has_value() && pair.commit().has_value());
  EXPECT_EQ(pair.wait_failed().code(), ErrorCode::kUnavailable) << "the lane is closed";
  EXPECT_FALSE(pair.verified);
}

// The loopback receives one payload after the other. A network may be writing the first payload where the
// second would begin.
TEST(MisbehavingPeer, ABlobGetsNoBufferIfItRestartsDuringTheReceptionOfAPiece) {
  Nobody nobody;
  ReceiverCore core(test::device(1), {42, 2, 0},
                    track::FingerprintParams::expand({}, track::FingerprintPurpose::kRoot), nobody, nullptr,
                    kMiB, kMiB);
  LaneHeader header;
  header.type = LaneMessage::kPlan;
  BlobRecord piece;
  piece.total = 100;
  EXPECT_EQ(core.blob_destination(header, piece, 60).size(), 60U);
  EXPECT_EQ(core.blob_destination(header, piece, 60).size(), 0U);
  EXPECT_FALSE(test::must(core.blob_received(header, piece, 60)));
  piece.offset = 60;
  EXPECT_EQ(core.blob_destination(header, piece, 40).size(), 40U);
  EXPECT_TRUE(test::must(core.blob_received(header, piece, 40)));
}

// The announced memory would be truncated to zero bytes while a reader has it mapped.
TEST(MisbehavingPeer, AnEmptyHostStateIsRefused) {
  Nobody nobody;
  ReceiverCore core(test::device(1), {42, 2, 0},
                    track::FingerprintParams::expand({}, track::FingerprintPurpose::kRoot), nobody, nullptr,
                    kMiB, kMiB);
  ASSERT_TRUE(core.reserve_host_memory({.limit = 64 * kKiB, .expected = 0}).has_value());
  LaneHeader header;
  header.type = LaneMessage::kHostState;
  const auto received = core.blob_received(header, BlobRecord{}, 0);
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code(), ErrorCode::kProtocol);
}

// The messages contain stale chunks of a removed extent, stale chunks of its earlier generation, and one
// chunk named repeatedly.
TEST(RightPeer, ARepeatedStaleMessageIsAnsweredOnce) {
  const auto stale = [](const Bytes& done) {
    AckRecord real;
    real.region = real.generation = 1;
    real.chunk = 5;
    AckRecord gone = real;
    gone.region = 99;
    AckRecord earlier = real;
    earlier.generation = 0;
    Headers headers(1000, made(done, LaneMessage::kStale, real));
    headers.push_back(made(done, LaneMessage::kStale, gone, earlier));
    headers.push_back(done);
    return headers;
  };
  FaultInjectingTransport transport(first_of(kSource, LaneMessage::kScanDone, stale));
  EnginePair pair({.transport = &transport});
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  test::must(move(pair));
  pair.wait_verified();
  EXPECT_EQ(pair.mismatches(), 1U);
  EXPECT_EQ(pair.differences(), 0U);
}

TEST(RightPeer, DroppingAnEarlierGenerationLosesNoData) {
  FaultInjectingTransport transport(first_of(kTarget, LaneMessage::kVerify, [](const Bytes& verify) {
    return Headers{made(verify, LaneMessage::kDrop, DropRecord{1, 0}), verify};
  }));
  EnginePair pair({.transport = &transport});
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  test::must(move(pair));
  pair.wait_verified();
  EXPECT_EQ(pair.differences(), 0U);
}

// One flipped bit anywhere in one message's header ends the session, or has no effect.
TEST(MisbehavingPeer, AFlippedHeaderBitIsRefusedOrHasNoEffect) {
  constexpr unsigned kSeeds = 60;
  constexpr unsigned kMessages = 40;  // the number of messages in a move of this size
  unsigned refused = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const unsigned which = random() % kMessages;
    const unsigned bit = random();
    std::atomic<unsigned> count = 0;
    FaultInjectingTransport transport([&](const Arrival& arrival) {
      Bytes bytes = arrival.bytes();
      if (count.fetch_add(1) == which) bytes[bit / 8 % bytes.size()] ^= static_cast<std::byte>(1U << bit % 8);
      return Headers{bytes};
    });
    EnginePair pair({.sizes = {1 * kMiB}, .transport = &transport});
    pair.source().write(0, test::random_bytes(1 * kMiB, seed));
    if (const auto moved = move(pair); moved.has_value()) {
      pair.wait_verified();
      ASSERT_TRUE(pair.verified);
      ASSERT_EQ(pair.differences(), 0U);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, kSeeds / 4);
}

}  // namespace
}  // namespace ckpt::engine
