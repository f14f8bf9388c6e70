// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxHeaders = 256;
constexpr std::size_t kMaxNoteBytes = 64u << 10;
constexpr std::size_t kMaxIdBytes = 64;

bool read_at(int fd, std::uint64_t offset, std::span<std::byte> out) {
  return offset < (std::uint64_t{1} << 62) &&
         ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(out.size());
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) & ~std::size_t{3};
}

std::string id_in(std::span<const std::byte> notes) {
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    notes = notes.subspan(sizeof note);
    if (note.n_namesz > notes.size() || padded(note.n_namesz) > notes.size()) return {};
    const auto name = notes.first(note.n_namesz);
    notes = notes.subspan(padded(note.n_namesz));
    if (note.n_descsz > notes.size()) return {};
    const auto content = notes.first(note.n_descsz);
    const bool is_gnu = name.size() == 4 && std::memcmp(name.data(), "GNU", 4) == 0;
    if (is_gnu && note.n_type == NT_GNU_BUILD_ID && content.size() <= kMaxIdBytes)
      return hexadecimal(content);
    notes = notes.subspan(std::min(padded(note.n_descsz), notes.size()));
  }
  return {};
}

}  // namespace

std::string build_id_of(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Elf64_Ehdr header;
  if (!fd || !read_at(fd.get(), 0, std::as_writable_bytes(std::span(&header, 1)))) return {};
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMaxHeaders) {
    return {};
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!read_at(fd.get(), header.e_phoff, std::as_writable_bytes(std::span(segments)))) return {};
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::vector<std::byte> notes(segment.p_filesz);
    if (!read_at(fd.get(), segment.p_offset, notes)) continue;
    if (std::string id = id_in(notes); !id.empty()) return id;
  }
  return {};
}

}  // namespace ckpt::agent::host
