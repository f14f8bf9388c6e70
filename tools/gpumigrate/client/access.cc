// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/access.h"

#include <unistd.h>

#include <toml++/toml.h>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libckpt/base/fd.h"
#include "libckpt/net/control/toml_text.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kLargestFile = 64 << 10;

Error bad_file(const std::string& file, const std::string& what) {
  return {ErrorCode::kInvalidArgument, file + ": " + what};
}

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kScheme = "https://";

// Splits a URL like "https://10.0.0.1:7060" into its parts.
Result<void> parse_url(const std::string& url, const std::string& file, Access& access) {
  access.url = url;
  const std::size_t colon = url.rfind(':');
  const Error unusable(
      ErrorCode::kProtocol,
      file + ": \"" + url.substr(0, 80) + "\" is not a valid address; use one like https://10.0.0.1:7060");
  if (!url.starts_with(kScheme) || colon <= kScheme.size()) return unusable;
  const char* end = url.data() + url.size();
  const auto [parsed, failure] = std::from_chars(url.data() + colon + 1, end, access.port);
  if (failure != std::errc{} || parsed != end) return unusable;
  access.host = url.substr(kScheme.size(), colon - kScheme.size());
  if (access.host.size() > 2 && access.host.front() == '[' && access.host.back() == ']')
    access.host = access.host.substr(1, access.host.size() - 2);
  return ok();
}

Result<std::string> read_token(const std::string& path) {
  CKPT_TRY(token, read_file(path, kLargestFile));
  while (!token.empty() && (token.back() == '\n' || token.back() == ' ' || token.back() == '\r'))
    token.pop_back();
  return std::move(token);
}

Result<Access> from_api_file(const std::string& home) {
  const std::string file = home + "/coordinator/api.json";
  auto text = read_file(file, kLargestFile);
  if (!text)
    return Error(ErrorCode::kUnavailable, "There is no coordinator at " + home +
                                              ": start one with `gpumigrate local up`, or set "
                                              "GPUMIGRATE_HOME to the home of a running coordinator");
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const auto value = [&json](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>()
                                                                         : std::string();
  };
  Access access;
  const std::string socket = value("socket");
  if (socket.starts_with(kUnix)) access.socket = socket.substr(kUnix.size());
  if (const std::string url = value("url"); !url.empty() || access.socket.empty()) {
    CKPT_TRYV(parse_url(url, "api.json", access));
  }
  if (!access.socket.empty()) return access;
  CKPT_TRY(token, read_token(value("token_file")));
  access.token = std::move(token);
  access.files = {value("ca"), value("certificate"), value("key")};
  return access;
}

Result<toml::table> parse(const std::string& text, const std::string& file) {
  CKPT_TRYV(control::check_toml_text(text, file));
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    return bad_file(file,
                    "line " + std::to_string(e.source().begin.line) + ": " + std::string(e.description()));
  }
}

std::string folder_of(const std::string& file) {
  return std::filesystem::absolute(file).parent_path().string();
}

Result<Access> from_client_file(const std::string& text, const std::string& file) {
  CKPT_TRY(table, parse(text, file));
  Access access;
  std::string url;
  std::string token_file;
  for (const auto& [key, node] : table) {
    std::string* out = key == "url"           ? &url
                       : key == "token_file"  ? &token_file
                       : key == "ca"          ? &access.files.ca
                       : key == "certificate" ? &access.files.certificate
                       : key == "key"         ? &access.files.key
                                              : nullptr;
    const auto value = node.value_exact<std::string>();
    if (out == nullptr || !value)
      return bad_file(file,
                      "the key \"" + std::string(key.str()) + "\" is unknown, or its value is not a string");
    *out = *value;
  }
  CKPT_TRYV(parse_url(url, file, access));
  for (std::string* path : {&token_file, &access.files.ca, &access.files.certificate, &access.files.key})
    if (!path->empty() && path->front() != '/') *path = folder_of(file) + "/" + *path;
  if (token_file.empty()) return access;
  CKPT_TRY(token, read_token(token_file));
  access.token = std::move(token);
  return access;
}

}  // namespace

Result<std::string> api_url(const std::string& home, const std::string& given) {
  Access access;
  if (given.empty()) {
    auto found = find_access(home);
    if (found) access = *std::move(found);
  } else {
    if (auto parsed = parse_url(given, "--url", access); !parsed)
      return Error(ErrorCode::kInvalidArgument, parsed.error().message());
  }
  if (!access.url.empty()) return access.url;
  return Error(ErrorCode::kInvalidArgument,
               "The coordinator's URL is not known on this machine, or the coordinator has no certificates: "
               "name its URL, like --url https://10.0.0.1:7060");
}

std::string client_settings(const std::string& url) {
  return "url = \"" + url + "\"\nca = \"ca.pem\"\ncertificate = \"client.pem\"\nkey = \"client.key\"\n";
}

Result<Access> find_access(const std::string& home) {
  const std::string file = home + "/client.toml";
  if (::access(file.c_str(), F_OK) != 0) return from_api_file(home);
  CKPT_TRY(text, read_file(file, kLargestFile));
  return from_client_file(text, file);
}

}  // namespace ckpt::cli
