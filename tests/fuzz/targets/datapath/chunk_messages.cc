// SPDX-License-Identifier: Apache-2.0
// The target's handling of a lane's messages, in any order and with any content, as in receive_lane.cc but
// without its device. For any input, chunks are inside their regions and blobs are inside their memory. A
// manifest is only accepted with the root over the target's memory.
#include <array>
#include <vector>

#include "libckpt/datapath/engine/target/receiver_core.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/store/plan.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using engine::LaneMessage;

constexpr engine::SessionIdentity kSession{7, 2, 0};
constexpr std::uint64_t kMaxExtentBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMaxBlobBytes = std::uint64_t{64} << 10;
constexpr std::size_t kMaxMessages = 40;
constexpr CUdeviceptr kBase = 1 << 20;

// Returns a device that is never queried; the core only passes it on.
const Device& no_device() {
  alignas(Device) static std::byte memory[sizeof(Device)];
  return *reinterpret_cast<const Device*>(memory);
}

track::Fingerprint fingerprint_of(std::uint64_t region, std::uint64_t chunk) {
  return {region * 1000 + chunk, chunk};
}

// A delegate like that of target_transfer.cc: only data that fits into existing memory is assigned a place.
class Delegate final : public engine::ReceiverDelegate {
 public:
  Result<engine::PlanPlaces> on_plan(std::span<const std::byte> bytes) override {
    CKPT_TRY(plan, image::decode_plan(bytes));
    engine::PlanPlaces places;
    places.chunk_bytes = plan.chunk_bytes;
    for (const image::Extent& extent : plan.extents) {
      if (extent.bytes > kMaxExtentBytes) return Error(ErrorCode::kRefused, "There is no such tensor here");
      places.regions.push_back({extent.id, extent.generation, kBase, extent.bytes, nullptr});
    }
    return places;
  }
  Result<void> on_manifest(std::span<const std::byte>, const track::Fingerprint&,
                           const engine::ReceivedHostState&) override {
    return ok();
  }
  void on_verified(const engine::VerifiedReport&, engine::ReceivedHostState) override { ++verified; }
  void on_failed(const Error&) override { ++failed; }
  unsigned verified = 0;
  unsigned failed = 0;
};

std::vector<std::byte> known_plan(std::uint8_t choice) {
  std::vector<wire::TensorInfo> tensors;
  for (std::uint64_t region = 1; region <= 1 + choice % 3U; ++region) {
    wire::TensorInfo& tensor = tensors.emplace_back();
    tensor.name = std::string(region, 't');
    tensor.region = region;
    tensor.shape = {(choice + 1U) * 1000U};
    tensor.bytes = tensor.shape[0] * 4;
    tensor.dtype = CKPT_F32;
    tensor.kind = CKPT_PARAMETER;
  }
  return wire::encode(image::build_plan(tensors, 1 << 16, 1, 1 + choice / 64U * 4U).value());
}

class Target {
 public:
  explicit Target(Input& input)
      : input_(input),
        core_(no_device(), kSession,
              track::FingerprintParams::expand(track::FingerprintKey{}, track::FingerprintPurpose::kRoot),
              delegate_, nullptr, kMaxBlobBytes, kMaxBlobBytes) {}

  void run() {
    for (std::size_t i = 0; i < kMaxMessages && !input_.empty() && !core_.failed(); ++i) {
      if (auto handled = handle_next(); !handled) core_.fail(handled.error());
    }
    FUZZ_CHECK(delegate_.failed <= 1 && delegate_.verified <= 1);
    FUZZ_CHECK(core_.failed() == (delegate_.failed == 1));
  }

 private:
  Result<void> handle_next() {
    const auto type = input_.number<std::uint8_t>();
    switch (type % 6) {
      case 0:
        return blob(LaneMessage::kPlan, plan_bytes());
      case 1:
        return chunks();
      case 2:
        return drop();
      case 3:
        return final_round();
      case 4:
        return blob(LaneMessage::kHostState, input_.bytes(input_.number<std::uint8_t>()));
      default:
        return blob(LaneMessage::kManifest, input_.bytes(input_.number<std::uint8_t>()));
    }
  }

  std::span<const std::byte> plan_bytes() {
    const auto choice = input_.number<std::uint8_t>();
    if (choice == 255) return input_.bytes(input_.number<std::uint16_t>());
    plan_ = known_plan(choice);
    return plan_;
  }

  engine::LaneHeader header(LaneMessage type, std::size_t count) {
    engine::LaneHeader header;
    header.type = type;
    header.count = static_cast<std::uint16_t>(count);
    header.migration = kSession.migration;
    header.incarnation = kSession.incarnation;
    header.rank = kSession.rank;
    header.round = round_;
    return header;
  }
  template <class Record>
  static std::vector<std::byte> message(const engine::LaneHeader& header, std::span<const Record> records) {
    std::vector<std::byte> bytes(sizeof header + records.size_bytes());
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, records.data(), records.size_bytes());
    return bytes;
  }

  Result<void> chunks() {
    const std::size_t count = 1 + input_.number<std::uint8_t>() % engine::kMaxChunks;
    std::vector<engine::ChunkRecord> records(count);
    std::size_t payload = 0;
    for (engine::ChunkRecord& record : records) {
      record.region = input_.number<std::uint8_t>();
      record.generation = input_.number<std::uint8_t>();
      record.chunk = input_.number<std::uint8_t>();
      record.encoding = input_.number<std::uint8_t>();
      record.bytes = input_.number<std::uint32_t>() % ((1 << 16) + 2);
      if (record.chunk == 255) record.chunk = input_.number<std::uint32_t>();
      payload += record.bytes;
    }
    const auto off = input_.number<std::uint8_t>();  // an offset that makes the payload's length differ from
                                                     // the length of the records
    if (off % 4 == 1) payload += off;
    if (off % 4 == 2) payload -= std::min<std::size_t>(payload, off);
    const auto head = header(LaneMessage::kChunks, count);
    const auto bytes = message<engine::ChunkRecord>(head, records);
    CKPT_TRY(parsed, engine::parse_lane_header(bytes, kSession));
    std::array<engine::ReceiverCore::Placed, engine::kMaxChunks> places;
    CKPT_TRYV(core_.place(parsed, bytes, payload, places));
    std::vector<track::Fingerprint> fingerprints;
    for (std::size_t i = 0; i < count; ++i) {
      fingerprints.push_back(fingerprint_of(records[i].region, records[i].chunk));
      if (!places[i].region) continue;
      const engine::TransferRegion& region = places[i].region->region;
      FUZZ_CHECK(region.id == records[i].region && region.generation == records[i].generation);
      FUZZ_CHECK(places[i].address >= region.address && places[i].bytes > 0);
      FUZZ_CHECK(places[i].address - region.address <= region.bytes);
      FUZZ_CHECK(places[i].bytes <= region.bytes - (places[i].address - region.address));
    }
    core_.arrived(parsed, records, places, fingerprints);
    return ok();
  }

  Result<void> drop() {
    const engine::DropRecord record{input_.number<std::uint8_t>(), input_.number<std::uint8_t>()};
    core_.drop(record);
    return ok();
  }

  Result<void> final_round() {
    round_ += input_.number<std::uint8_t>() % 4;
    std::vector<track::ChunkRange> ranges;
    std::vector<engine::ReceiverCore::ScanItem> items;
    CKPT_TRYV(core_.begin_verify(round_, ranges, items));
    FUZZ_CHECK(ranges.size() == items.size());
    std::vector<track::Fingerprint> fingerprints;
    for (const auto& item : items) fingerprints.push_back(fingerprint_of(item.region->region.id, item.chunk));
    // A chunk of the target's memory may differ from the arrived chunk.
    if (input_.number<std::uint8_t>() % 4 == 1 && !fingerprints.empty()) fingerprints.front().lo ^= 1;
    std::vector<engine::AckRecord> stale;
    core_.scanned(items, fingerprints, stale);
    FUZZ_CHECK(stale.size() <= items.size());
    core_.end_scan(1, 2, 3);
    return input_.number<std::uint8_t>() % 4 == 1 ? ok() : core_.begin_final(round_);
  }

  // Sends a blob in pieces of one size. The total length in the first piece may be wrong.
  Result<void> blob(LaneMessage type, std::span<const std::byte> bytes) {
    const auto shape = input_.number<std::uint8_t>();
    engine::BlobRecord record;
    record.total = bytes.size();
    if (shape % 8 == 1) record.total = input_.number<std::uint64_t>();
    record.root = {input_.number<std::uint8_t>(), 0};
    const std::size_t piece = shape % 8 == 2 ? 7 : std::max<std::size_t>(bytes.size(), 1);
    bool complete = false;
    do {
      const auto part = bytes.first(std::min(piece, bytes.size()));
      const auto head = header(type, 1);
      const auto place =
          part.empty() ? std::span<std::byte>() : core_.blob_destination(head, record, part.size());
      if (!part.empty() && place.empty()) return Error(ErrorCode::kProtocol, "No place for a piece");
      FUZZ_CHECK(place.size() == part.size());
      std::copy(part.begin(), part.end(), place.begin());
      CKPT_TRY(whole, core_.blob_received(head, record, part.size()));
      complete = whole;
      bytes = bytes.subspan(part.size());
      record.offset += part.size();
      if (shape % 8 == 3) record.offset = input_.number<std::uint8_t>();
    } while (!bytes.empty());
    if (!complete) return ok();
    if (type == LaneMessage::kPlan) return core_.accept_plan();
    if (type == LaneMessage::kManifest) {
      (void)core_.verify(record.root);
      core_.verified();
    }
    return ok();
  }

  Input& input_;
  Delegate delegate_;
  engine::ReceiverCore core_;
  std::vector<std::byte> plan_;
  std::uint32_t round_ = 1;
};

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::fuzz::Input input(data, size);
  ckpt::fuzz::Target(input).run();
  return 0;
}
