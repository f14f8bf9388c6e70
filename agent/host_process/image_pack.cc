// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/image_pack.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace ckpt::agent::host {
namespace {

constexpr std::uint64_t kMagic = 0x3247'4d49'4350'4d47;  // the bytes "GMPCIMG2", by which a pack is
                                                         // recognized
constexpr std::uint32_t kVersion = 2;
constexpr int kMaxDepth = 32;  // maximum depth of an image's folder

struct PackEnd {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t count = 0;
};
struct PackEntry {
  std::uint64_t bytes = 0;
  std::array<char, 56> name{};  // name filled with zero bytes; the last byte is always zero
};
static_assert(sizeof(PackEnd) == 16 && sizeof(PackEntry) == 64);

bool is_good_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() < sizeof PackEntry::name && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), good);
}

Error corrupt(const std::string& what) {
  return {ErrorCode::kCorrupt, "The image of the process is damaged: " + what};
}

bool is_pages(std::string_view name) {
  return name.starts_with("pages-") && name.ends_with(".img");
}

// Copies `count` bytes of `from`, beginning at `at`, to the current position of `to`.
Result<void> copy(int to, int from, std::uint64_t at, std::uint64_t count, const std::string& name) {
  auto offset = static_cast<off_t>(at);
  while (count > 0) {
    const ssize_t done =
        ::sendfile(to, from, &offset, std::min<std::uint64_t>(count, std::uint64_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Error::from_errno("Cannot copy " + name + " of a process's image");
    if (done == 0) return corrupt(name + " ends early");
    count -= static_cast<std::uint64_t>(done);
  }
  return ok();
}

PackEntry make_entry(const std::string& name, std::uint64_t bytes) {
  PackEntry entry;
  entry.bytes = bytes;
  std::memcpy(entry.name.data(), name.data(), name.size());
  return entry;
}

// Lists the files of a folder. The file of `pages` comes first.
Result<std::vector<PackEntry>> list_folder(const std::string& folder, const PlacedPages& pages) {
  std::vector<PackEntry> entries;
  if (pages.file) entries.push_back(make_entry(pages.name, *pages.bytes));
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = item.path().filename().string();
    struct stat facts {};
    if (::lstat(item.path().c_str(), &facts) != 0)
      return Error::from_errno("Cannot read " + item.path().string());
    if (S_ISLNK(facts.st_mode) && pages.file && name == pages.name) continue;
    if (!S_ISREG(facts.st_mode) || !is_good_name(name))
      return Error(ErrorCode::kRefused, "A process's image must not contain " + item.path().string());
    entries.push_back(make_entry(name, static_cast<std::uint64_t>(facts.st_size)));
  }
  if (error) return Error::from_errno(error.value(), "Cannot read " + folder);
  if (entries.size() > kMaxPackedFiles)
    return Error(ErrorCode::kRefused, "A process's image has too many files");
  return entries;
}

Result<void> read_exactly(int file, std::uint64_t at, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(file, out.data(), out.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read a process's image");
    if (got == 0) return corrupt("it is truncated");
    out = out.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::uint64_t>(got);
  }
  return ok();
}

// Reads the table, and checks it against the size of the pack before use.
Result<std::vector<PackEntry>> read_table(int file, std::uint64_t bytes) {
  PackEnd end;
  if (bytes < sizeof end) return corrupt("it is too short");
  std::uint64_t left = bytes - sizeof end;
  CKPT_TRYV(read_exactly(file, left, std::as_writable_bytes(std::span(&end, 1))));
  if (end.magic != kMagic || end.version != kVersion) return corrupt("it has an unknown kind or version");
  if (end.count > kMaxPackedFiles || end.count > left / sizeof(PackEntry))
    return corrupt("its table is too long");
  std::vector<PackEntry> entries(end.count);
  left -= entries.size() * sizeof(PackEntry);
  CKPT_TRYV(read_exactly(file, left, std::as_writable_bytes(std::span(entries))));
  for (const PackEntry& entry : entries) {
    if (entry.name.back() != '\0' || !is_good_name(entry.name.data()))
      return corrupt("a file in it has no valid name");
    if (entry.bytes > left) return corrupt("its files are longer than the image");
    left -= entry.bytes;
  }
  if (left != 0) return corrupt("it contains other data in addition to its files");
  return entries;
}

Result<void> take_out(int file, std::uint64_t at, const PackEntry& entry, const std::string& path) {
  const UniqueFd target(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!target && errno == EEXIST) return corrupt(std::string(entry.name.data()) + " is listed twice");
  if (!target) return Error::from_errno("Cannot create " + path);
  return copy(target.get(), file, at, entry.bytes, path);
}

Result<UniqueFd> growing_memory_file() {
  UniqueFd file(::memfd_create("gpumigrate-process", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error::from_errno("Cannot create a memory file for a process's image");
  return file;
}

}  // namespace

std::string pages_name(std::size_t position) {
  return "pages-" + std::to_string(position + 1) + ".img";
}

Result<void> link_to_descriptor(int file, const std::string& path) {
  // CRIU opens the pages of a restored process inside the process's own mount namespace, whose /proc lacks
  // this agent. The link is therefore relative and climbs up from the folder. CRIU has opened the folder
  // outside that namespace, so the path stays on this node.
  std::string target;
  for (int i = 0; i < kMaxDepth; ++i) target += "../";
  target += "proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
  if (::symlink(target.c_str(), path.c_str()) == 0) return ok();
  return Error::from_errno("Cannot create " + path);
}

Result<PlacedPages> place_pages(const std::string& folder, std::size_t position) {
  CKPT_TRY(file, growing_memory_file());
  PlacedPages pages;
  pages.name = pages_name(position);
  CKPT_TRYV(link_to_descriptor(file.get(), folder + "/" + pages.name));
  pages.file = std::move(file);
  return pages;
}

Result<PackedImage> pack_folder(const std::string& folder, PlacedPages pages) {
  if (pages.file && !pages.bytes) {
    struct stat facts {};
    if (::fstat(pages.file.get(), &facts) != 0) return Error::from_errno("Cannot read a process's pages");
    pages.bytes = static_cast<std::uint64_t>(facts.st_size);
  }
  CKPT_TRY(entries, list_folder(folder, pages));
  const std::size_t placed = pages.file ? 1 : 0;
  if (!pages.file) {
    CKPT_TRY(file, growing_memory_file());
    pages.file = std::move(file);
  }
  PackedImage packed;
  packed.file = std::move(pages.file);
  packed.bytes = pages.bytes.value_or(0);
  if (::lseek(packed.file.get(), static_cast<off_t>(packed.bytes), SEEK_SET) < 0)
    return Error::from_errno("Cannot pack a process's image");
  for (const PackEntry& entry : std::span(entries).subspan(placed)) {
    const std::string path = folder + "/" + entry.name.data();
    const UniqueFd source(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!source) return Error::from_errno("Cannot open " + path);
    CKPT_TRYV(copy(packed.file.get(), source.get(), 0, entry.bytes, path));
    packed.bytes += entry.bytes;
  }
  PackEnd end;
  end.count = static_cast<std::uint32_t>(entries.size());
  CKPT_TRYV(write_all(packed.file.get(), std::as_bytes(std::span(entries))));
  CKPT_TRYV(write_all(packed.file.get(), std::as_bytes(std::span(&end, 1))));
  packed.bytes += entries.size() * sizeof(PackEntry) + sizeof end;
  // The size is sealed, because a process that has mapped the file must never find it shorter.
  if (::fcntl(packed.file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return Error::from_errno("Cannot seal a process's image");
  return packed;
}

Result<void> unpack_folder(int file, std::uint64_t bytes, const std::string& folder) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0) return Error::from_errno("Cannot read a process's image");
  if (facts.st_size < 0 || static_cast<std::uint64_t>(facts.st_size) != bytes)
    return corrupt("it has " + std::to_string(facts.st_size) + " bytes instead of " + std::to_string(bytes));
  CKPT_TRY(entries, read_table(file, bytes));
  std::uint64_t at = 0;
  for (const PackEntry& entry : entries) {
    const std::string path = folder + "/" + entry.name.data();
    // CRIU reads pages by their positions in the file, so the linked file may be longer than its pages.
    const bool linked =
        &entry == entries.data() && entry.bytes >= kLinkedBytes && is_pages(entry.name.data());
    CKPT_TRYV(linked ? link_to_descriptor(file, path) : take_out(file, at, entry, path));
    at += entry.bytes;
  }
  return ok();
}

}  // namespace ckpt::agent::host
