// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace ckpt::checkpoint_store {
namespace {

constexpr std::uint64_t kPackMagic = 0x314b'4341'5056'5047;  // the magic at the beginning of a pack: the
                                                             // bytes "GPVPACK1"
constexpr std::uint64_t kTailMagic = 0x314c'4941'5456'5047;  // the magic of a pack's tail: the bytes
                                                             // "GPVTAIL1"
constexpr std::uint32_t kRecordMagic = 0x4345'5256;          // the magic of a record: the bytes "VREC"

Error corrupt(std::string what) {
  return {ErrorCode::kCorrupt, std::move(what)};
}

// Returns the hash over all fields except the last, which stores it.
template <class Head>
std::uint64_t hash_of(const Head& head) {
  return checksum(std::as_bytes(std::span(&head, 1)).first(sizeof head - sizeof(std::uint64_t)));
}

template <class Head>
Result<Head> read_head(std::span<const std::byte> bytes, const char* what) {
  if (bytes.size() < sizeof(Head)) return corrupt(std::string(what) + " is cut off");
  Head head{};
  std::memcpy(&head, bytes.data(), sizeof head);
  return head;
}

Error newer(std::uint32_t format) {
  return {ErrorCode::kNotSupported, "The data is stored in format " + std::to_string(format) +
                                        ", but this build reads " + std::to_string(kStoredFormat)};
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

PackHead make_pack_head(std::uint64_t number) {
  PackHead head{kPackMagic, kStoredFormat, 0, number, 0};
  head.head_hash = hash_of(head);
  return head;
}

RecordHead make_record_head(RecordKind kind, Packing packing, const ContentId& id, std::uint64_t plain_bytes,
                            std::span<const std::byte> payload) {
  RecordHead head{};
  head.magic = kRecordMagic;
  head.kind = kind;
  head.packing = packing;
  head.stored_bytes = static_cast<std::uint32_t>(payload.size());
  head.plain_bytes = static_cast<std::uint32_t>(plain_bytes);
  head.id = id;
  head.payload_hash = checksum(payload);
  head.head_hash = hash_of(head);
  return head;
}

PackTail make_pack_tail(std::uint64_t index_offset, std::span<const IndexEntry> index) {
  PackTail tail{kTailMagic, index_offset, index.size(), checksum(std::as_bytes(index)), 0};
  tail.tail_hash = hash_of(tail);
  return tail;
}

IndexEntry make_index_entry(const RecordHead& head, std::uint64_t offset) {
  return {head.id, offset, head.stored_bytes, head.kind, head.packing, 0};
}

Result<void> check_pack_head(std::span<const std::byte> bytes, std::uint64_t number) {
  CKPT_TRY(head, read_head<PackHead>(bytes, "The pack's head"));
  if (head.magic != kPackMagic || head.head_hash != hash_of(head))
    return corrupt("The pack's head is damaged");
  if (head.format != kStoredFormat) return newer(head.format);
  if (head.zero != 0 || head.number != number)
    return corrupt("The pack's head has the wrong number " + std::to_string(head.number));
  return ok();
}

Result<RecordHead> read_record_head(std::span<const std::byte> bytes) {
  CKPT_TRY(head, read_head<RecordHead>(bytes, "A record"));
  if (head.magic != kRecordMagic || head.head_hash != hash_of(head))
    return corrupt("A record's head is damaged");
  if (!is_known(head.kind) || !is_known(head.packing) || head.zero != 0 || head.plain_bytes == 0 ||
      head.plain_bytes > kMaxChunkBytes || head.stored_bytes == 0 || head.stored_bytes > head.plain_bytes ||
      (head.packing == Packing::kRaw) != (head.stored_bytes == head.plain_bytes))
    return corrupt("A record has an invalid kind or length");
  return head;
}

Result<std::span<const std::byte>> check_payload(const RecordHead& head, std::span<const std::byte> record) {
  if (record.size() != record_bytes(head.stored_bytes)) return corrupt("A record is cut off");
  const auto payload = record.subspan(sizeof head, head.stored_bytes);
  if (checksum(payload) != head.payload_hash) return corrupt("A record's payload is damaged");
  const auto padding = record.subspan(sizeof head + head.stored_bytes);
  if (!std::all_of(padding.begin(), padding.end(), [](std::byte b) { return b == std::byte{0}; }))
    return corrupt("A record's padding is damaged");
  return payload;
}

Result<PackTail> read_pack_tail(std::span<const std::byte> bytes, std::uint64_t pack_bytes) {
  CKPT_TRY(tail, read_head<PackTail>(bytes, "The pack's tail"));
  if (tail.magic != kTailMagic || tail.tail_hash != hash_of(tail))
    return corrupt("The pack's tail is damaged");
  if (pack_bytes < sizeof(PackHead) + sizeof(PackTail) ||
      tail.count > (pack_bytes - sizeof(PackHead) - sizeof(PackTail)) / sizeof(IndexEntry) ||
      tail.index_offset != pack_bytes - sizeof(PackTail) - tail.count * sizeof(IndexEntry))
    return corrupt("The length in the pack's tail does not match the pack");
  return tail;
}

Result<std::vector<IndexEntry>> read_index(const PackTail& tail, std::span<const std::byte> bytes) {
  if (bytes.size() / sizeof(IndexEntry) != tail.count || bytes.size() % sizeof(IndexEntry) != 0 ||
      checksum(bytes) != tail.index_hash)
    return corrupt("The pack's index is damaged");
  std::vector<IndexEntry> index(bytes.size() / sizeof(IndexEntry));
  if (!index.empty()) std::memcpy(index.data(), bytes.data(), bytes.size());
  std::uint64_t end = sizeof(PackHead);
  for (const IndexEntry& entry : index) {
    if (entry.offset != end || !is_known(entry.kind) || !is_known(entry.packing) || entry.zero != 0 ||
        entry.stored_bytes == 0 || entry.stored_bytes > kMaxChunkBytes ||
        record_bytes(entry.stored_bytes) > tail.index_offset - end)
      return corrupt("The pack's index has invalid records");
    end += record_bytes(entry.stored_bytes);
  }
  if (end != tail.index_offset) return corrupt("The pack's index does not cover the whole pack");
  return index;
}

std::vector<std::byte> make_small_file(SmallFile kind, std::span<const std::byte> body) {
  SmallHead head{static_cast<std::uint64_t>(kind), kStoredFormat, 0, body.size(), checksum(body), 0};
  head.head_hash = hash_of(head);
  std::vector<std::byte> bytes(sizeof head + body.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof head, body.data(), body.size());
  return bytes;
}

Result<std::span<const std::byte>> read_small_file(SmallFile kind, std::span<const std::byte> bytes) {
  CKPT_TRY(head, read_head<SmallHead>(bytes, "The file"));
  if (head.magic != static_cast<std::uint64_t>(kind) || head.head_hash != hash_of(head))
    return corrupt("The file's head is damaged");
  if (head.format != kStoredFormat) return newer(head.format);
  const auto body = bytes.subspan(sizeof head);
  if (head.zero != 0 || head.body_bytes != body.size() || checksum(body) != head.body_hash)
    return corrupt("The file's body is damaged");
  return body;
}

}  // namespace ckpt::checkpoint_store
