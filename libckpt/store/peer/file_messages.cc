// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/file_messages.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace ckpt::checkpoint_store {
namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
}

bool is_of_job(std::string_view rest) {
  if (rest.empty() || rest == "/job" || rest == "/job.new") return true;
  for (const std::string_view folder : {"/packs", "/versions"}) {
    if (!rest.starts_with(folder)) continue;
    const std::string_view name = rest.substr(folder.size());
    if (name.empty() || (name.front() == '/' && is_plain_name(name.substr(1)))) return true;
  }
  return false;
}

}  // namespace

Result<void> check_path(const std::string& path, const std::string& job) {
  const std::string mine = "jobs/" + job;
  const bool whole =
      path.empty() || path == "vault" || path == "vault.new" || path == "lock" || path == "jobs";
  if (path.size() <= kMaxPathBytes &&
      (whole || (path.starts_with(mine) && is_of_job(std::string_view(path).substr(mine.size())))))
    return ok();
  return Error(
      ErrorCode::kInvalidArgument,
      "\"" + path.substr(0, kMaxPathBytes) + "\" does not belong to job " + job + " in a checkpoint store");
}

bool is_file_of_job(const std::string& path, const std::string& job) {
  const std::string mine = "jobs/" + job;
  if (!check_path(path, job) || !path.starts_with(mine)) return false;
  const std::string_view rest = std::string_view(path).substr(mine.size());
  return !rest.empty() && rest != "/packs" && rest != "/versions";
}

}  // namespace ckpt::checkpoint_store
