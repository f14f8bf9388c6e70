// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/kept_logs.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLogSuffix = ".log";

std::optional<std::string> read_end(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  const off_t from = std::max<off_t>(0, facts.st_size - static_cast<off_t>(kKeptLogBytes));
  std::string text(static_cast<std::size_t>(facts.st_size - from), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t more =
        ::pread(file.get(), text.data() + got, text.size() - got, from + static_cast<off_t>(got));
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  text.resize(got);
  return text;
}

// Writes a text file without a sync, because the program waits for this write after a failed dump.
Result<void> write_text(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error::from_errno("Cannot open " + path);
  return write_all(file.get(), std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

void remove_old_logs(const std::string& folder, std::chrono::seconds keep_for) {
  std::vector<fs::directory_entry> logs;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored) && entry.path().extension() == kLogSuffix) logs.push_back(entry);
  }
  std::sort(logs.begin(), logs.end(), [](const fs::directory_entry& a, const fs::directory_entry& b) {
    std::error_code gone;
    return a.last_write_time(gone) > b.last_write_time(gone);
  });
  const auto oldest = fs::file_time_type::clock::now() - keep_for;
  for (std::size_t at = 0; at < logs.size(); ++at) {
    if (at >= kMaxKeptLogs || logs[at].last_write_time(ignored) < oldest)
      fs::remove(logs[at].path(), ignored);
  }
}

std::optional<std::string> save_log(const std::string& folder, const std::string& path,
                                    const std::string& name) {
  const auto text = read_end(path);
  if (!text) return std::nullopt;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return std::nullopt;
  const std::string copy = folder + "/" + name + "-" + std::to_string(wall_clock_ms()) + kLogSuffix;
  if (auto written = write_text(copy, *text); !written) {
    spdlog::warn("CRIU's log not saved: path {} reason {}", path, written.error().to_string());
    return std::nullopt;
  }
  remove_old_logs(folder);
  return copy;
}

}  // namespace ckpt::agent::host
