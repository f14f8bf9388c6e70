// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/unseen_writes.h"

#include <fcntl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 16;

// Checks whether the kernel has pinned pages of the process for io_uring or RDMA.
bool has_pinned_pages(pid_t pid) {
  const Result<std::string> status = read_file(proc_path(pid, "/status"), kMaxText);
  if (!status) return true;
  const std::string& text = *status;
  const std::size_t at = text.find("\nVmPin:");
  return at != std::string::npos && std::atoll(text.c_str() + at + 7) > 0;
}

bool has_asynchronous_io(pid_t pid) {
  std::ifstream maps(proc_path(pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/[aio]") != std::string::npos || line.find("[io_uring]") != std::string::npos) return true;
  }
  return false;
}

bool reads_around_the_cache(pid_t pid, const std::string& descriptor) {
  const Result<std::string> facts = read_file(proc_path(pid, "/fdinfo/" + descriptor), kMaxText);
  if (!facts) return false;  // the descriptor was closed in the meantime
  const std::size_t at = facts->find("flags:");
  return at != std::string::npos && (std::strtol(facts->c_str() + at + 6, nullptr, 8) & O_DIRECT) != 0;
}

}  // namespace

bool may_be_written_unseen(pid_t pid) {
  if (has_pinned_pages(pid) || has_asynchronous_io(pid)) return true;
  std::error_code error;
  std::filesystem::directory_iterator file(proc_path(pid, "/fd"), error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(file->path(), gone).string();
    if (gone) continue;
    // A pipe with O_DIRECT is a pipe of packets, so its flag does not count.
    if (target.starts_with("pipe:")) continue;
    // A program that protects its memory with its own userfaultfd affects the results of a watch.
    if (target.find("[userfaultfd]") != std::string::npos || target.find("[io_uring]") != std::string::npos ||
        target.starts_with("/dev/infiniband/") ||
        reads_around_the_cache(pid, file->path().filename().string()))
      return true;
  }
  return static_cast<bool>(error);
}

}  // namespace ckpt::agent::host
