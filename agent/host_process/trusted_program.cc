// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/trusted_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace ckpt::agent::host {
namespace {

Result<void> check_owner_and_mode(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return Error::from_errno("Cannot inspect " + path);
  if (facts.st_uid != 0 && facts.st_uid != ::geteuid())
    return Error(ErrorCode::kRefused,
                 path + " belongs to user " + std::to_string(facts.st_uid) + ": change the owner to root");
  const bool open_to_others = (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  const bool only_adds = S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) != 0;
  if (open_to_others && !only_adds)
    return Error(ErrorCode::kRefused,
                 "Other users may write to " + path + ": remove this permission (chmod go-w)");
  return ok();
}

}  // namespace

Result<void> check_trusted_program(const std::string& path) {
  std::error_code failed;
  std::filesystem::path at = std::filesystem::canonical(path, failed);
  if (failed) return Error::from_errno(failed.value(), "Cannot find " + path);
  for (; !at.empty(); at = at.parent_path()) {
    CKPT_TRYV(check_owner_and_mode(at.string()));
    if (at == at.root_path()) return ok();
  }
  return ok();
}

}  // namespace ckpt::agent::host
