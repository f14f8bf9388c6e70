// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "libckpt/include/ckpt/ckpt.h"

namespace ckpt::local {
namespace {

TensorRecord sample_tensor() {
  TensorRecord tensor;
  tensor.name.assign("layer.0.weight");
  tensor.region = 3;
  tensor.offset = 4096;
  tensor.bytes = 6 * 4;
  tensor.dtype = CKPT_F32;
  tensor.kind = CKPT_PARAMETER;
  tensor.dims = 2;
  tensor.shape = {2, 3};
  return tensor;
}

RegionRecord sample_region(std::uint64_t id) {
  return {id, id + 5, 2 << 20, {1, 2, 3}};
}

// Returns a valid group for the sample messages, which cover every type.
GroupRecord sample_group() {
  GroupRecord group;
  group.name.assign("world");
  group.bytes = 128;
  group.ticket[127] = std::byte{7};
  return group;
}

std::vector<Body> samples() {
  Welcome welcome;
  welcome.job.assign("j-1");
  Status status;
  status.phase = Phase::kPaused;
  Failed failed;
  failed.code = static_cast<std::uint32_t>(ErrorCode::kRefused);
  failed.text.assign("no");
  Map map{.set = MemorySet::kArrived, .gpu_count = 1, .migration = 12};
  map.gpus[0] = {.uuid = {1, 2}, .ordinal = 0, .pci_bus = 7};
  return {Hello{7, 1, MigrationMode::kTransparent, 1},
          welcome,
          Attach{},
          status,
          Done{},
          failed,
          Describe{},
          Tensors{{sample_tensor()}},
          Regions{{sample_region(1), sample_region(2)}},
          DescribeEnd{},
          Export{},
          ExportBatch{9, {sample_region(1)}},
          ExportAck{9},
          ExportEnd{},
          RegionFreed{1, 2},
          RegionFreedAck{1, 2},
          TensorDropped{Name("layer")},
          StopExport{},
          Ready{},
          StandbyReady{},
          Pause{},
          Paused{10, 20, 64},
          Resume{2, 0, 64},
          Running{2, 30, 1, 0},
          Moved{},
          SetDeadline{5},
          Stop{100},
          Kill{},
          Shutdown{},
          RankStopped{1},
          RankContinued{2},
          RankExited{0, 1},
          Release{2, 77},
          Released{40},
          Deposit{3, 12, {sample_region(1), sample_region(2)}},
          Withdraw{12},
          map,
          MapBatch{4, {sample_region(1)}},
          MapAck{4},
          Mapped{50},
          Make{5, {{1, 6}, {2, 7}}},
          Made{5, {sample_region(1), sample_region(2)}},
          PrepareDump{},
          DumpReady{},
          Reattach{},
          Fetch{MemorySet::kArrived, 0, 12, 3},
          Held{3, {sample_region(1)}},
          Replace{6, 12, {sample_region(1), sample_region(2)}},
          WithdrawRegions{7, 12, {{1, 6}, {2, 7}}},
          AwaitMemory{},
          StopAt{7, 12},
          Counted{12, 11},
          InGate{2},
          AskGroups{9, {5}},
          Groups{{sample_group()}},
          GroupsEnd{1, 0},
          JoinGroups{9, {sample_group()}},
          GroupsJoined{9},
          DiscardGroups{9}};
}

std::size_t descriptors_of(const Body& body) {
  if (const auto* batch = std::get_if<ExportBatch>(&body)) return batch->records.size();
  if (const auto* batch = std::get_if<Deposit>(&body)) return batch->records.size();
  if (const auto* batch = std::get_if<MapBatch>(&body)) return batch->records.size();
  if (const auto* batch = std::get_if<Made>(&body)) return batch->records.size();
  if (const auto* batch = std::get_if<Held>(&body)) return batch->records.size();
  if (const auto* batch = std::get_if<Replace>(&body)) return batch->records.size();
  return std::holds_alternative<Welcome>(body) || std::holds_alternative<Paused>(body) ||
                 std::holds_alternative<Resume>(body)
             ? 1
             : 0;
}

std::vector<std::byte> bytes_of(const Body& body) {
  Result<std::vector<std::byte>> bytes = encode({0, 42, body});
  EXPECT_TRUE(bytes.has_value());
  return *bytes;
}

TEST(LocalMessages, EveryMessageTypeIsParsedAsEncoded) {
  const std::vector<Body> all = samples();
  ASSERT_EQ(all.size(), std::variant_size_v<Body>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].index(), i) << "the samples follow the order of Body";
    const std::vector<std::byte> bytes = bytes_of(all[i]);
    const Result<Message> parsed = parse(bytes, descriptors_of(all[i]));
    ASSERT_TRUE(parsed.has_value()) << to_string(type_of(all[i])) << ": " << parsed.error().to_string();
    EXPECT_EQ(parsed->request, 42u);
    EXPECT_EQ(bytes_of(parsed->body), bytes);
    EXPECT_NE(to_string(type_of(all[i])), "?");
  }
}

TEST(LocalMessages, WrongNumberOfDescriptorsIsRefused) {
  for (const Body& body : samples()) {
    const std::size_t right = descriptors_of(body);
    EXPECT_FALSE(parse(bytes_of(body), right + 1).has_value()) << to_string(type_of(body));
    if (right > 0) {
      EXPECT_FALSE(parse(bytes_of(body), right - 1).has_value()) << to_string(type_of(body));
    }
  }
}

TEST(LocalMessages, EveryTruncationAndEveryExtraByteIsRefused) {
  for (const Body& body : samples()) {
    std::vector<std::byte> bytes = bytes_of(body);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(parse(std::span(bytes).first(length), descriptors_of(body)).has_value())
          << to_string(type_of(body));
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(parse(bytes, descriptors_of(body)).has_value()) << to_string(type_of(body));
  }
}

TEST(LocalMessages, MutatedMessagesAreRefusedOrWithinTheirLength) {
  std::mt19937_64 random(1);
  for (const Body& body : samples()) {
    const std::vector<std::byte> original = bytes_of(body);
    for (int i = 0; i < 4000; ++i) {
      std::vector<std::byte> bytes = original;
      for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << (random() % 8));
      }
      const Result<Message> parsed = parse(bytes, descriptors_of(body));
      if (!parsed.has_value()) {
        EXPECT_EQ(parsed.error().code(), ErrorCode::kProtocol);
        continue;
      }
      // A parsed message encodes to exactly the same bytes, including rank and request.
      const Result<std::vector<std::byte>> again = encode(*parsed);
      ASSERT_TRUE(again.has_value());
      EXPECT_EQ(*again, bytes) << to_string(type_of(body));
    }
  }
}

TEST(LocalMessages, HeaderFieldsAreValidated) {
  const std::vector<std::byte> good = bytes_of(Attach{});
  for (std::size_t at : {0u, 4u, 6u, 11u, 12u}) {  // magic, version, type, rank (high byte), length
    std::vector<std::byte> bytes = good;
    bytes[at] ^= std::byte{0x80};
    EXPECT_FALSE(parse(bytes, 0).has_value()) << "byte " << at;
  }
}

template <class Change>
bool tensor_passes(Change change) {
  TensorRecord tensor = sample_tensor();
  change(tensor);
  return parse(bytes_of(Tensors{{tensor}}), 0).has_value();
}

TEST(LocalMessages, TensorsAreValidated) {
  EXPECT_TRUE(tensor_passes([](TensorRecord&) {}));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.name.assign(""); }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.name.assign("two\nlines"); }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.name.bytes.fill('x'); }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.bytes += 4; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.bytes = 0; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.offset = ~0ull - 8; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.region = kNoRegion; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.dtype = 99; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.kind = 0; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.dims = 9; }));
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.shape[7] = 1; }));
  // 2^62 * 4 * 4 bytes wraps around to 0.
  EXPECT_FALSE(tensor_passes([](TensorRecord& t) { t.shape = {1ull << 62, 4}; }));
}

TEST(LocalMessages, BatchesAreBounded) {
  EXPECT_FALSE(encode({0, 1, Tensors{}}).has_value());
  Tensors many;
  many.records.assign(kMaxRecords, sample_tensor());
  const std::vector<std::byte> full = bytes_of(many);
  EXPECT_LE(full.size(), kMaxMessageBytes);
  EXPECT_TRUE(parse(full, 0).has_value());
  many.records.push_back(sample_tensor());
  EXPECT_FALSE(encode({0, 1, many}).has_value());

  std::vector<std::byte> lying = bytes_of(Tensors{{sample_tensor()}});
  const std::uint32_t count = 2;
  std::memcpy(lying.data() + sizeof(MessageHeader), &count, sizeof count);
  EXPECT_FALSE(parse(lying, 0).has_value());
}

TEST(LocalMessages, TransparentRanksPauseWithoutHostState) {
  EXPECT_TRUE(parse(bytes_of(Paused{10, 20, 0}), 0).has_value());
  EXPECT_FALSE(parse(bytes_of(Paused{10, 20, 0}), 1).has_value());
}

TEST(LocalMessages, MemoryMessagesAreValidated) {
  const auto passes = [](const Map& map) { return parse(bytes_of(map), 0).has_value(); };
  EXPECT_TRUE(passes({}));
  EXPECT_TRUE(passes({.set = MemorySet::kArrived, .migration = 3}));
  EXPECT_FALSE(passes({.set = static_cast<MemorySet>(3)}));
  EXPECT_FALSE(passes({.gpu_count = kMaxGpus + 1}));
  EXPECT_FALSE(passes({.set = MemorySet::kExported, .migration = 3}));
  EXPECT_FALSE(parse(bytes_of(Make{1, {{0, 1}}}), 0).has_value());
  EXPECT_FALSE(parse(bytes_of(Deposit{1, 2, {RegionRecord{}}}), 1).has_value());
  EXPECT_FALSE(parse(bytes_of(Fetch{MemorySet::kMade, 0, 0, 0}), 0).has_value());
  EXPECT_FALSE(parse(bytes_of(Fetch{MemorySet::kExported, 0, 2, 0}), 0).has_value());
  EXPECT_FALSE(parse(bytes_of(Release{1, 2, 2, 0}), 0).has_value());
  EXPECT_FALSE(parse(bytes_of(Replace{1, 2, {sample_region(1)}}), 0).has_value());
}

TEST(LocalMessages, RegionDigestsDistinguishIdsAndGenerations) {
  EXPECT_NE(region_digest(1, 2), region_digest(2, 1));
  EXPECT_NE(region_digest(1, 1) + region_digest(2, 2), region_digest(1, 2) + region_digest(2, 1));
}

TEST(LocalMessages, ErrorsAreSentAsASingleCleanLine) {
  const Failed failed =
      to_failed(MessageType::kPause, Error(ErrorCode::kRefused, "first\nsecond\t" + std::string(2000, 'x')));
  const Result<Message> parsed = parse(bytes_of(failed), 0);
  ASSERT_TRUE(parsed.has_value());
  const Error error = to_error(std::get<Failed>(parsed->body));
  EXPECT_EQ(error.code(), ErrorCode::kRefused);
  EXPECT_EQ(error.message().substr(0, 13), "first second ");
}

}  // namespace
}  // namespace ckpt::local
