// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/backup/backup_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::backup {
namespace {

using Bytes = std::vector<std::byte>;

Error damaged(const std::string& how) {
  return {ErrorCode::kCorrupt, "This is not a complete backup: " + how};
}

std::span<const std::byte> bytes_of(const std::uint32_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::uint64_t stored_bytes(std::uint64_t part_bytes) {
  return part_bytes + (part_bytes + kBlockBytes - 1) / kBlockBytes * sizeof(std::uint32_t);
}

// Reads exactly the requested bytes at that offset. Returns false if the file is shorter.
Result<bool> read_at(int fd, std::span<std::byte> to, std::uint64_t at) {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd, to.data(), to.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Reading a backup");
    if (got == 0) return false;
    to = to.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::uint64_t>(got);
  }
  return true;
}

// A file that gets its name only once it is complete and on the disk.
class NewFile {
 public:
  static Result<NewFile> create(const std::string& path) {
    NewFile file(path);
    (void)::unlink(file.temporary_.c_str());
    file.fd_.reset(
        ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.fd_) return Error::from_errno("Creating " + file.temporary_);
    return file;
  }
  NewFile(NewFile&&) = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile() {
    if (fd_) ::unlink(temporary_.c_str());
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  Result<void> keep() {
    if (::fsync(fd_.get()) != 0) return Error::from_errno("fsync of " + temporary_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return Error::from_errno("Renaming to " + path_);
    fd_.reset();
    const std::string folder = std::filesystem::absolute(path_).parent_path();
    const UniqueFd parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent || ::fsync(parent.get()) != 0) return Error::from_errno("Cannot sync the folder " + folder);
    return ok();
  }

 private:
  explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".new") {}
  std::string path_;
  std::string temporary_;
  UniqueFd fd_;
};

Result<void> write_part(int from, std::uint64_t bytes, int to) {
  Bytes block(std::min<std::uint64_t>(bytes, kBlockBytes));
  for (std::uint64_t at = 0; at < bytes; at += block.size()) {
    block.resize(std::min<std::uint64_t>(bytes - at, kBlockBytes));
    CKPT_TRY(whole, read_at(from, block, at));
    if (!whole) return Error(ErrorCode::kIo, "A part of the backup became shorter while it was read");
    const std::uint32_t sum = wire::crc32(block);
    CKPT_TRYV(write_all(to, block));
    CKPT_TRYV(write_all(to, bytes_of(sum)));
  }
  return ok();
}

Result<void> check_contents(const Contents& contents, std::uint64_t header_end, std::uint64_t file_bytes) {
  if (contents.sizes.size() != kParts.size()) return damaged("its parts are not the expected ones");
  std::uint64_t end = header_end;
  for (const std::uint64_t bytes : contents.sizes) {
    if (bytes > kMaxPartBytes) return damaged("a part of " + std::to_string(bytes) + " bytes");
    end += stored_bytes(bytes);
  }
  if (end != file_bytes)
    return damaged("it has " + std::to_string(file_bytes) + " bytes instead of " + std::to_string(end));
  return ok();
}

}  // namespace

Result<Beginning> parse_beginning(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  if (bytes.size() < kPrefixBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return damaged("it does not begin with a backup header");
  std::uint32_t header_bytes = 0;
  std::uint32_t sum = 0;
  std::memcpy(&header_bytes, bytes.data() + kMagic.size(), sizeof header_bytes);
  std::memcpy(&sum, bytes.data() + kMagic.size() + sizeof header_bytes, sizeof sum);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kPrefixBytes)
    return damaged("its header is cut off");
  const auto header = bytes.subspan(kPrefixBytes, header_bytes);
  if (wire::crc32(header) != sum) return damaged("its header is damaged");
  auto contents = wire::decode<Contents>(header);
  if (!contents.has_value()) {
    if (contents.error().code() == ErrorCode::kNotSupported)
      return Error(ErrorCode::kNotSupported, "The backup was written by a newer version of gpumigrate");
    return damaged(contents.error().message());
  }
  Beginning beginning{*std::move(contents), kPrefixBytes + header_bytes};
  if (beginning.contents.sizes.size() == kRequiredParts) beginning.contents.sizes.resize(kParts.size(), 0);
  CKPT_TRYV(check_contents(beginning.contents, beginning.header_end, file_bytes));
  return beginning;
}

Result<void> write_backup(const std::string& path, Contents contents, std::span<const UniqueFd> parts) {
  if (parts.size() != kParts.size() || contents.sizes.size() != kParts.size())
    return Error(ErrorCode::kInternal, "The backup does not have the expected parts");
  const Bytes header = wire::encode(contents);
  if (header.size() > kMaxHeaderBytes) return Error(ErrorCode::kInternal, "A backup's header is too long");
  CKPT_TRY(file, NewFile::create(path));
  CKPT_TRYV(write_all(file.fd(), std::as_bytes(std::span(kMagic))));
  CKPT_TRYV(write_all(file.fd(), bytes_of(static_cast<std::uint32_t>(header.size()))));
  CKPT_TRYV(write_all(file.fd(), bytes_of(wire::crc32(header))));
  CKPT_TRYV(write_all(file.fd(), header));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CKPT_TRYV(write_part(parts[i].get(), contents.sizes[i], file.fd()));
  }
  return file.keep();
}

Result<BackupFile> BackupFile::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return Error::from_errno("Opening " + path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return Error::from_errno("Looking at " + path);
  if (!S_ISREG(status.st_mode)) return damaged(path + " is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  Bytes bytes(std::min<std::uint64_t>(file_bytes, kPrefixBytes + kMaxHeaderBytes));
  CKPT_TRY(whole, read_at(fd.get(), bytes, 0));
  if (!whole) return damaged("it became shorter while it was read");
  CKPT_TRY(beginning, parse_beginning(bytes, file_bytes));
  return BackupFile(std::move(fd), std::move(beginning));
}

template <class Take>
Result<void> BackupFile::read_part(std::size_t part, Take sink) const {
  std::uint64_t at = beginning_.header_end;
  for (std::size_t i = 0; i < part; ++i) at += stored_bytes(contents().sizes[i]);
  std::uint64_t left = contents().sizes[part];
  Bytes block;
  while (left > 0) {
    const std::uint64_t bytes = std::min<std::uint64_t>(left, kBlockBytes);
    block.resize(bytes + sizeof(std::uint32_t));
    CKPT_TRY(whole, read_at(fd_.get(), block, at));
    if (!whole) return damaged("it became shorter while it was read");
    std::uint32_t sum = 0;
    std::memcpy(&sum, block.data() + bytes, sizeof sum);
    const auto data = std::span<const std::byte>(block).first(bytes);
    if (wire::crc32(data) != sum) return damaged("its part " + std::string(kParts[part]) + " is damaged");
    CKPT_TRYV(sink(data));
    at += block.size();
    left -= bytes;
  }
  return ok();
}

Result<void> BackupFile::verify() const {
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    CKPT_TRYV(read_part(i, [](std::span<const std::byte>) -> Result<void> { return ok(); }));
  }
  return ok();
}

Result<void> BackupFile::extract(std::size_t part, int to) const {
  return read_part(part, [to](std::span<const std::byte> data) { return write_all(to, data); });
}

Result<void> BackupFile::copy_to(const std::string& path) const {
  CKPT_TRY(file, NewFile::create(path));
  Bytes block(kBlockBytes);
  for (std::uint64_t at = 0;;) {
    const ssize_t got = ::pread(fd_.get(), block.data(), block.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Reading a backup");
    if (got == 0) return file.keep();
    CKPT_TRYV(write_all(file.fd(), std::span(block).first(static_cast<std::size_t>(got))));
    at += static_cast<std::uint64_t>(got);
  }
}

}  // namespace ckpt::backup
