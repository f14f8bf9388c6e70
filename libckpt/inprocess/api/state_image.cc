// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/state_image.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "libckpt/inprocess/local/messages.h"

namespace ckpt::job {
namespace {

constexpr std::uint64_t kStateMagic = 0x31455441'54535043;  // the magic of a state image: the bytes
                                                            // "CPSTATE1"
constexpr std::uint32_t kMaxEntries = 1u << 17;
constexpr std::uint64_t kAlignment = 16;

struct FileHeader {
  std::uint64_t magic = kStateMagic;
  std::uint64_t bytes = 0;     // the size of the whole file
  std::uint64_t checksum = 0;  // the checksum of all bytes after this header
  std::uint32_t entries = 0;
  std::uint32_t reserved = 0;
};

struct EntryHeader {
  std::uint32_t kind = 0;
  std::uint32_t name_bytes = 0;
  std::uint64_t data_bytes = 0;
};
static_assert(sizeof(FileHeader) == 32 && sizeof(EntryHeader) == kAlignment);

std::uint64_t align(std::uint64_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

// Computes a checksum against damage, not against attacks: two lanes of multiply-and-rotate over 8-byte words
// (the file is a multiple of 16 bytes).
std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  std::uint64_t lanes[2] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f};
  for (std::size_t i = 0; i + 16 <= bytes.size(); i += 16) {
    std::uint64_t words[2];
    std::memcpy(words, bytes.data() + i, sizeof words);
    for (int lane = 0; lane < 2; ++lane) {
      const std::uint64_t mixed = (lanes[lane] ^ words[lane]) * 0xff51afd7ed558ccd;
      lanes[lane] = (mixed << 31) | (mixed >> 33);
    }
  }
  return lanes[0] ^ ((lanes[1] << 17) | (lanes[1] >> 47)) ^ bytes.size();
}

class FileMapping {
 public:
  FileMapping(int fd, std::size_t bytes)
      : address_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)), bytes_(bytes) {}
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping() {
    if (valid()) ::munmap(address_, bytes_);
  }
  [[nodiscard]] bool valid() const { return address_ != MAP_FAILED; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), bytes_}; }

 private:
  void* address_;
  std::size_t bytes_;
};

Error corrupt(const char* reason) {
  return Error(ErrorCode::kCorrupt, std::string("The moved host state is damaged: ") + reason);
}

}  // namespace

Result<StateFile> write_state(std::span<const PlannedEntry> entries) {
  std::uint64_t total = sizeof(FileHeader);
  for (const PlannedEntry& entry : entries) {
    total += sizeof(EntryHeader) + align(entry.name.size()) + align(entry.bytes);
  }
  if (total > local::kMaxHostStateBytes || entries.size() > kMaxEntries) {
    return Error(ErrorCode::kRefused, "The host state has " + std::to_string(total) + " bytes, but at most " +
                                          std::to_string(local::kMaxHostStateBytes) + " can move");
  }
  CKPT_TRY(fd, make_memory_file("ckpt-host-state", total));
  FileMapping mapping(fd.get(), total);
  if (!mapping.valid()) return Error::from_errno("Cannot map the host state's memory file");
  std::size_t at = sizeof(FileHeader);
  for (const PlannedEntry& entry : entries) {
    const EntryHeader head{static_cast<std::uint32_t>(entry.kind),
                           static_cast<std::uint32_t>(entry.name.size()), entry.bytes};
    std::memcpy(mapping.bytes().data() + at, &head, sizeof head);
    at += sizeof head;
    std::memcpy(mapping.bytes().data() + at, entry.name.data(), entry.name.size());
    at += align(entry.name.size());
    CKPT_TRYV(entry.fill(mapping.bytes().subspan(at, entry.bytes)));
    at += align(entry.bytes);
  }
  const FileHeader header{kStateMagic, total, checksum_of(mapping.bytes().subspan(sizeof(FileHeader))),
                          static_cast<std::uint32_t>(entries.size()), 0};
  std::memcpy(mapping.bytes().data(), &header, sizeof header);
  return StateFile{std::move(fd), total};
}

Result<StateImage> StateImage::read(int fd, std::uint64_t bytes) {
  if (bytes < sizeof(FileHeader) || bytes > local::kMaxHostStateBytes || bytes % kAlignment != 0)
    return corrupt("its size");
  StateImage image;
  image.bytes_.resize(bytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(fd, image.bytes_.data() + at, bytes - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read the moved host state");
    if (got == 0) return corrupt("it is shorter than announced");
    at += static_cast<std::uint64_t>(got);
  }
  FileHeader header;
  std::memcpy(&header, image.bytes_.data(), sizeof header);
  std::span<const std::byte> rest = std::span(image.bytes_).subspan(sizeof header);
  if (header.magic != kStateMagic || header.bytes != bytes || header.reserved != 0)
    return corrupt("its header");
  if (header.entries > kMaxEntries) return corrupt("the number of its entries is too large");
  if (header.checksum != checksum_of(rest)) return corrupt("its checksum");
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    EntryHeader head;
    if (rest.size() < sizeof head) return corrupt("the header of an entry is cut off");
    std::memcpy(&head, rest.data(), sizeof head);
    rest = rest.subspan(sizeof head);
    if (head.kind < 1 || head.kind > 4 || head.name_bytes == 0 || head.name_bytes >= local::kNameBytes ||
        align(head.name_bytes) > rest.size() || head.data_bytes > rest.size() - align(head.name_bytes) ||
        align(head.data_bytes) > rest.size() - align(head.name_bytes)) {
      return corrupt("the size of an entry is wrong");
    }
    StateEntry entry{static_cast<EntryKind>(head.kind),
                     std::string(reinterpret_cast<const char*>(rest.data()), head.name_bytes),
                     rest.subspan(align(head.name_bytes), head.data_bytes)};
    if (!image.index_.emplace(std::pair(entry.kind, entry.name), image.entries_.size()).second) {
      return corrupt("an entry exists twice");
    }
    rest = rest.subspan(align(head.name_bytes) + align(head.data_bytes));
    image.entries_.push_back(std::move(entry));
  }
  if (!rest.empty()) return corrupt("there are bytes after the last entry");
  return image;
}

const StateEntry* StateImage::find(EntryKind kind, const std::string& name) const {
  const auto found = index_.find(std::pair(kind, name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

}  // namespace ckpt::job
