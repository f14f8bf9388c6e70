// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/api_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kMaxApiFileBytes = 64 << 10;

// A regular file's text and owner, both read from one open file.
struct OwnedText {
  std::string text;
  struct stat status {};
};

Result<OwnedText> read_owned(const std::string& path, std::size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file) return Error::from_errno("Cannot open " + path);
  OwnedText read;
  if (::fstat(file.get(), &read.status) != 0) return Error::from_errno("Cannot inspect " + path);
  if (!S_ISREG(read.status.st_mode)) return Error(ErrorCode::kRefused, path + " is not a regular file");
  CKPT_TRY(text, read_file("/proc/self/fd/" + std::to_string(file.get()), limit));
  read.text = std::move(text);
  return read;
}

Result<std::string> field_of(const std::string& path, const std::string& text, const char* field) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto value = json.is_object() ? json.find(field) : json.end();
  if (!json.is_object() || value == json.end() || !value->is_string())
    return Error(ErrorCode::kInvalidArgument, path + " has no \"" + field + "\"");
  return value->get<std::string>();
}

Result<std::string> token_of(const std::string& path, std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (!text.empty()) return text;
  return Error(ErrorCode::kInvalidArgument, path + " is empty: it must hold the agents' token");
}

}  // namespace

Result<std::string> read_token(const std::string& path) {
  CKPT_TRY(text, read_file(path, kMaxTokenBytes));
  return token_of(path, std::move(text));
}

Result<std::string> address_in_api_file(const std::string& path) {
  CKPT_TRY(api, read_owned(path, kMaxApiFileBytes));
  return field_of(path, api.text, "agent_address");
}

Result<std::string> token_by_api_file(const std::string& path) {
  CKPT_TRY(api, read_owned(path, kMaxApiFileBytes));
  CKPT_TRY(named, field_of(path, api.text, "agent_token_file"));
  CKPT_TRY(token, read_owned(named, kMaxTokenBytes));
  const bool is_theirs = token.status.st_uid == api.status.st_uid && (token.status.st_mode & 0077) == 0;
  if (!is_theirs)
    return Error(ErrorCode::kRefused, named + ", which " + path +
                                          " names as the token, must have the same owner as that file, and "
                                          "no permissions for group and others (chmod 600)");
  return token_of(named, std::move(token.text));
}

}  // namespace ckpt::agent
