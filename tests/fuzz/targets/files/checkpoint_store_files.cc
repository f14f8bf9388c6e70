// SPDX-License-Identifier: Apache-2.0
// A checkpoint store's files as another program may have written them: versions, job records, lists, and
// whole packs. The input selects correct checksums, so that the code behind the checksums is tested as well.
// For any file, reading fails cleanly or gives values that their users can rely on.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "libckpt/store/local/pack.h"
#include "libckpt/store/local/record_coder.h"
#include "libckpt/store/local/version.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using checkpoint_store::File;
using checkpoint_store::FolderEntry;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kNumber = 1;

// A file system with one file, which exists under every name.
class OneFile : public checkpoint_store::Files {
 public:
  explicit OneFile(Bytes bytes) : bytes_(std::move(bytes)) {}
  Result<std::unique_ptr<File>> create(const std::string&) override { return refused(); }
  Result<std::unique_ptr<File>> open(const std::string&) override {
    return std::unique_ptr<File>(std::make_unique<Reader>(bytes_));
  }
  Result<void> rename(const std::string&, const std::string&) override { return refused(); }
  Result<void> remove(const std::string&) override { return refused(); }
  Result<void> make_folder(const std::string&) override { return refused(); }
  Result<void> remove_folder(const std::string&) override { return refused(); }
  Result<std::vector<FolderEntry>> list(const std::string&) override { return refused(); }
  Result<void> sync_folder(const std::string&) override { return refused(); }
  Result<std::unique_ptr<checkpoint_store::FileLock>> lock(const std::string&) override { return refused(); }

 private:
  static Error refused() { return {ErrorCode::kRefused, "Only to read"}; }
  class Reader : public File {
   public:
    explicit Reader(const Bytes& bytes) : bytes_(bytes) {}
    Result<void> write_at(std::uint64_t, std::span<const std::byte>) override { return refused(); }
    Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const override {
      const std::size_t count =
          at < bytes_.size() ? std::min<std::size_t>(out.size(), bytes_.size() - at) : 0;
      std::copy_n(bytes_.data() + std::min<std::uint64_t>(at, bytes_.size()), count, out.begin());
      return count;
    }
    Result<std::uint64_t> size() const override { return bytes_.size(); }
    Result<void> sync() override { return refused(); }

   private:
    const Bytes& bytes_;
  };
  const Bytes bytes_;
};

checkpoint_store::RecordCoder& coder() {
  static const auto made = checkpoint_store::RecordCoder::create({}, 64 << 10).value();
  return *made;
}

void append(Bytes& bytes, const void* data, std::size_t count) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + count);
}

Bytes rest_of(Input& input) {
  const auto rest = input.bytes(1 << 20);
  return {rest.begin(), rest.end()};
}

void check_version_file(Input& input) {
  const bool framed = input.number<std::uint8_t>() % 2 == 0;
  Bytes file = rest_of(input);
  if (framed) file = checkpoint_store::make_small_file(checkpoint_store::SmallFile::kVersion, file);
  const auto version = checkpoint_store::decode_version(file);
  if (!version) return;
  const checkpoint_store::Version& v = *version;
  for (const auto& region : v.regions) {
    FUZZ_CHECK(region.list.chunk_count() != 0 && region.list.chunk_bytes == v.chunk_bytes);
    FUZZ_CHECK(region.list.blocks.size() == region.list.block_count() * sizeof(checkpoint_store::ContentId));
    FUZZ_CHECK(region.list.bytes_of_chunk(region.list.chunk_count() - 1) <= v.chunk_bytes);
  }
  const auto again = checkpoint_store::decode_version(checkpoint_store::encode_version(v));
  FUZZ_CHECK(again.has_value() && again->regions.size() == v.regions.size());
}

void check_job_file(Input& input) {
  const bool framed = input.number<std::uint8_t>() % 2 == 0;
  Bytes file = rest_of(input);
  if (framed) file = checkpoint_store::make_small_file(checkpoint_store::SmallFile::kJob, file);
  const auto record = checkpoint_store::decode_job(file);
  if (record) FUZZ_CHECK(record->content_key.size() == checkpoint_store::kContentKeyBytes);
}

// Adds records after the input's orders: intact records; records of any kind, packing and lengths under a
// correct checksum; or garbage.
void add_record(Input& input, Bytes& pack, std::vector<checkpoint_store::IndexEntry>& index,
                std::size_t& intact) {
  const auto what = input.number<std::uint8_t>();
  const auto payload = input.bytes(input.number<std::uint16_t>() % 2000);
  const std::uint64_t offset = pack.size();
  if (what % 4 == 0 || payload.empty()) return append(pack, payload.data(), payload.size());
  const auto packing =
      static_cast<checkpoint_store::Packing>(what % 4 == 1 ? 1 : input.number<std::uint8_t>() % 6);
  const auto kind =
      static_cast<checkpoint_store::RecordKind>(what % 4 == 1 ? 1 : input.number<std::uint8_t>() % 4);
  const std::uint64_t plain = what % 4 == 1 ? payload.size() : input.number<std::uint16_t>();
  checkpoint_store::ContentId id;
  if (what % 4 == 1) id = coder().id_of(kind, payload).value();
  const auto head = checkpoint_store::make_record_head(kind, packing, id, plain, payload);
  append(pack, &head, sizeof head);
  append(pack, payload.data(), payload.size());
  pack.resize(offset + checkpoint_store::record_bytes(payload.size()));
  index.push_back(checkpoint_store::make_index_entry(head, offset));
  intact += what % 4 == 1 ? 1 : 0;
}

Bytes make_pack(Input& input, std::size_t& intact, bool& disturbed) {
  const auto shape = input.number<std::uint8_t>();
  const auto cut = input.number<std::uint16_t>();
  disturbed = shape != 0 || cut != 0;
  Bytes pack;
  const auto head = checkpoint_store::make_pack_head(kNumber);
  append(pack, &head, sizeof head);
  std::vector<checkpoint_store::IndexEntry> index;
  for (int i = 0; i < 16 && !input.empty(); ++i) add_record(input, pack, index, intact);
  if (shape % 4 == 1 && !index.empty()) index[shape % index.size()].stored_bytes ^= cut;
  if (shape % 4 == 2 && !index.empty()) index[shape % index.size()].offset ^= cut;
  const auto tail = checkpoint_store::make_pack_tail(pack.size() + (shape % 4 == 3 ? shape : 0), index);
  append(pack, index.data(), index.size() * sizeof(checkpoint_store::IndexEntry));
  append(pack, &tail, sizeof tail);
  pack.resize(pack.size() - std::min<std::size_t>(cut, pack.size()));
  return pack;
}

void check_pack(Input& input) {
  std::size_t intact = 0;
  bool disturbed = false;
  OneFile files(make_pack(input, intact, disturbed));
  const auto loaded = checkpoint_store::load_pack(files, "packs", kNumber);
  if (loaded && loaded->damage.empty()) {
    std::uint64_t end = sizeof(checkpoint_store::PackHead);
    for (const checkpoint_store::IndexEntry& entry : loaded->index) {
      FUZZ_CHECK(entry.offset == end);
      end += checkpoint_store::record_bytes(entry.stored_bytes);
    }
    FUZZ_CHECK(end <= loaded->bytes);
  }
  std::size_t opened = 0;
  Bytes plain;
  const auto walked = checkpoint_store::walk_pack(
      files, "packs", kNumber,
      [&](const checkpoint_store::RecordHead& head, std::uint64_t,
          std::span<const std::byte> record) -> Result<void> {
        plain.resize(head.plain_bytes);
        if (head.plain_bytes <= coder().max_bytes() && coder().open(head, record, plain)) opened++;
        return ok();
      },
      [](std::uint64_t, const std::string&) {});
  FUZZ_CHECK(walked.has_value());
  // Garbage between records may hide some of them only where lengths were forged.
  if (!disturbed && loaded && loaded->damage.empty()) FUZZ_CHECK(opened >= intact);
}

void check_list(Input& input) {
  const auto chunks = input.number<std::uint16_t>();
  const Bytes plain = rest_of(input);
  const auto ids = checkpoint_store::decode_list(plain, chunks);
  if (ids) FUZZ_CHECK(ids->size() == chunks);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  Input input(data, size);
  switch (input.number<std::uint8_t>() % 4) {
    case 0:
      check_version_file(input);
      break;
    case 1:
      check_job_file(input);
      break;
    case 2:
      check_list(input);
      break;
    default:
      check_pack(input);
      break;
  }
  return 0;
}
