// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/image_pack.h"

#include <fcntl.h>
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

constexpr std::uint64_t kMagic = 0x3147'4d49'4350'4d47;  // "GMPCIMG1"
constexpr std::uint32_t kVersion = 1;

struct PackHeader {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t count = 0;
};
struct PackEntry {
  std::uint64_t bytes = 0;
  std::array<char, 56> name{};  // filled up with zeroes, the last of which is always there
};
static_assert(sizeof(PackHeader) == 16 && sizeof(PackEntry) == 64);

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

// All of `count` bytes, from and to the files' positions.
Result<void> copy(int to, int from, std::uint64_t count, const std::string& name) {
  while (count > 0) {
    const ssize_t done =
        ::sendfile(to, from, nullptr, std::min<std::uint64_t>(count, std::uint64_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Error::from_errno("Copying " + name + " of a process's image");
    if (done == 0) return corrupt(name + " ends early");
    count -= static_cast<std::uint64_t>(done);
  }
  return ok();
}

Result<std::vector<PackEntry>> list_folder(const std::string& folder) {
  std::vector<PackEntry> entries;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = item.path().filename().string();
    struct stat facts {};
    if (::lstat(item.path().c_str(), &facts) != 0)
      return Error::from_errno("Reading " + item.path().string());
    if (!S_ISREG(facts.st_mode) || !is_good_name(name))
      return Error(ErrorCode::kRefused, "A process's image must not hold " + item.path().string());
    PackEntry& entry = entries.emplace_back();
    entry.bytes = static_cast<std::uint64_t>(facts.st_size);
    std::memcpy(entry.name.data(), name.data(), name.size());
  }
  if (error) return Error::from_errno(error.value(), "Reading " + folder);
  if (entries.size() > kMostPackedFiles)
    return Error(ErrorCode::kRefused, "A process's image has too many files");
  return entries;
}

Result<void> read_exactly(int file, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::read(file, out.data(), out.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Reading a process's image");
    if (got == 0) return corrupt("it ends early");
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return ok();
}

// Header and table, judged against the size of the whole before anything is made of them.
Result<std::vector<PackEntry>> read_table(int file, std::uint64_t bytes) {
  PackHeader header;
  if (bytes < sizeof header) return corrupt("it is too short");
  CKPT_TRYV(read_exactly(file, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kMagic || header.version != kVersion)
    return corrupt("it is of another kind or version");
  if (header.count > kMostPackedFiles || header.count > (bytes - sizeof header) / sizeof(PackEntry))
    return corrupt("its table is too long");
  std::vector<PackEntry> entries(header.count);
  CKPT_TRYV(read_exactly(file, std::as_writable_bytes(std::span(entries))));
  std::uint64_t left = bytes - sizeof header - entries.size() * sizeof(PackEntry);
  for (const PackEntry& entry : entries) {
    if (entry.name.back() != '\0' || !is_good_name(entry.name.data()))
      return corrupt("a file in it has no proper name");
    if (entry.bytes > left) return corrupt("its files are longer than it");
    left -= entry.bytes;
  }
  if (left != 0) return corrupt("something follows its last file");
  return entries;
}

}  // namespace

Result<PackedImage> pack_folder(const std::string& folder) {
  CKPT_TRY(entries, list_folder(folder));
  PackHeader header;
  header.count = static_cast<std::uint32_t>(entries.size());
  PackedImage packed;
  packed.bytes = sizeof header + entries.size() * sizeof(PackEntry);
  for (const PackEntry& entry : entries) packed.bytes += entry.bytes;
  CKPT_TRY(file, make_memory_file("gpumigrate-process", static_cast<std::size_t>(packed.bytes)));
  CKPT_TRYV(write_all(file.get(), std::as_bytes(std::span(&header, 1))));
  CKPT_TRYV(write_all(file.get(), std::as_bytes(std::span(entries))));
  for (const PackEntry& entry : entries) {
    const std::string path = folder + "/" + entry.name.data();
    const UniqueFd source(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!source) return Error::from_errno("Opening " + path);
    CKPT_TRYV(copy(file.get(), source.get(), entry.bytes, path));
  }
  packed.file = std::move(file);
  return packed;
}

Result<void> unpack_folder(int file, std::uint64_t bytes, const std::string& folder) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0) return Error::from_errno("Reading a process's image");
  if (facts.st_size < 0 || static_cast<std::uint64_t>(facts.st_size) != bytes)
    return corrupt("it has " + std::to_string(facts.st_size) + " bytes instead of " + std::to_string(bytes));
  if (::lseek(file, 0, SEEK_SET) != 0) return Error::from_errno("Reading a process's image");
  CKPT_TRY(entries, read_table(file, bytes));
  for (const PackEntry& entry : entries) {
    const std::string path = folder + "/" + entry.name.data();
    const UniqueFd target(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!target && errno == EEXIST) return corrupt(std::string(entry.name.data()) + " is in it twice");
    if (!target) return Error::from_errno("Making " + path);
    CKPT_TRYV(copy(target.get(), file, entry.bytes, path));
  }
  return ok();
}

}  // namespace ckpt::agent::host
