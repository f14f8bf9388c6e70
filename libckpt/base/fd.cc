// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/fd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace ckpt {
namespace {

Result<void> fsync_folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash == 0 ? 1 : slash);
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error::from_errno("Opening folder " + folder);
  if (::fsync(fd.get()) != 0) return Error::from_errno("Cannot sync the folder " + folder);
  return ok();
}

}  // namespace

void FdTraits::close(int fd) noexcept {
  ::close(fd);
}

Result<void> write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("write of " + std::to_string(bytes.size()) + " bytes");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return ok();
}

Result<std::string> read_file(const std::string& path, std::size_t limit_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Error::from_errno("Opening " + path);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("Reading " + path);
    }
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > limit_bytes) {
      return Error(ErrorCode::kRefused, path + " is larger than " + std::to_string(limit_bytes) + " bytes");
    }
  }
}

Result<void> write_file_durably(const std::string& path, std::string_view text, unsigned mode) {
  const std::string temporary = path + ".new";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd) return Error::from_errno("Creating " + temporary);
  CKPT_TRYV(write_all(fd.get(), std::as_bytes(std::span(text.data(), text.size()))));
  if (::fsync(fd.get()) != 0) return Error::from_errno("fsync of " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return Error::from_errno("Renaming to " + path);
  return fsync_folder_of(path);
}

Result<UniqueFd> make_memory_file(const char* name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Error::from_errno("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Error::from_errno("Cannot size a memory file");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return Error::from_errno("Cannot seal a memory file");
  return fd;
}

}  // namespace ckpt
