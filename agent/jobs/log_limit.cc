// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/log_limit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::uint64_t kBlock = 512;  // unit of st_blocks in bytes
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kLongestPassedLine = std::size_t{64} << 10;

// Checks that the log belongs to the folder's owner. An agent that runs as root must not shorten a file of
// another user that a job's user has linked here.
bool is_log_of(const struct stat& log, const std::string& folder) {
  struct stat owner {};
  return ::stat(folder.c_str(), &owner) == 0 && S_ISREG(log.st_mode) && log.st_nlink == 1 &&
         log.st_uid == owner.st_uid;
}

}  // namespace

Result<std::uint64_t> free_old_output(const std::string& path, std::uint64_t limit) {
  struct stat facts {};
  const auto held = [&facts] { return static_cast<std::uint64_t>(facts.st_blocks) * kBlock; };
  if (limit == 0 || ::lstat(path.c_str(), &facts) != 0 || held() <= limit + limit / 8)
    return std::uint64_t{0};
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file || ::fstat(file.get(), &facts) != 0) return Error::from_errno("Cannot open " + path);
  if (!is_log_of(facts, std::filesystem::path(path).parent_path().string())) return std::uint64_t{0};
  const std::uint64_t before = held();
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (size <= limit) return std::uint64_t{0};
  const std::uint64_t freed = (size - limit) / kPage * kPage;
  if (::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(freed)) !=
      0) {
    const ErrorCode code = errno == EOPNOTSUPP ? ErrorCode::kNotSupported : ErrorCode::kIo;
    return Error(code, "The oldest bytes of " + path + " cannot be freed")
        .caused_by(Error::from_errno("fallocate"));
  }
  if (::fstat(file.get(), &facts) != 0) return Error::from_errno("Cannot read the size of " + path);
  return before - std::min(before, held());
}

std::uint64_t first_kept_byte(const std::string& path, std::uint64_t offset) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return offset;
  const off_t data = ::lseek(file.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0 || static_cast<std::uint64_t>(data) <= offset)
    return offset;  // `offset` is at the end of the file, or no bytes were deleted
  std::string bytes(kLongestPassedLine, '\0');
  const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), data);
  const auto text = std::string_view(bytes).substr(0, got < 0 ? 0 : static_cast<std::size_t>(got));
  const std::size_t end = text.find('\n');
  return static_cast<std::uint64_t>(data) + (end == std::string_view::npos ? 0 : end + 1);
}

}  // namespace ckpt::agent
