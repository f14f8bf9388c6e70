// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/join_token.h"

#include <array>
#include <string_view>
#include <vector>

namespace ckpt::cli {
namespace {

constexpr std::string_view kMark = "gmjoin1";
constexpr std::size_t kParts = 5;
constexpr std::size_t kMaxTokenBytes = 8192;
constexpr std::size_t kPemLine = 64;
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

std::string body_of(const std::string& pem) {
  std::string body;
  std::size_t at = 0;
  while (at < pem.size()) {
    const std::size_t end = std::min(pem.find('\n', at), pem.size());
    if (pem[at] != '-') body += pem.substr(at, end - at);
    at = end + 1;
  }
  return body;
}

std::string pem_of(std::string_view body, const std::string& what) {
  std::string pem = "-----BEGIN " + what + "-----\n";
  for (std::size_t at = 0; at < body.size(); at += kPemLine)
    pem += std::string(body.substr(at, kPemLine)) + "\n";
  return pem + "-----END " + what + "-----\n";
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else if (c != '\n' && c != ' ' && c != '\r')
      parts.back() += c;
  }
  return parts;
}

}  // namespace

std::string to_text(const JoinToken& token) {
  return std::string(kMark) + "," + token.url + "," + body_of(token.ca) + "," +
         body_of(token.own.certificate) + "," + body_of(token.own.key);
}

Result<JoinToken> parse_join_token(const std::string& text) {
  const Error bad(ErrorCode::kInvalidArgument,
                  "The text is not a join token; create one with `gpumigrate node token`");
  if (text.size() > kMaxTokenBytes) return bad;
  const std::vector<std::string> parts = parts_of(text);
  if (parts.size() != kParts || parts[0] != kMark || !parts[1].starts_with("https://")) return bad;
  for (std::size_t i = 2; i < kParts; ++i)
    if (parts[i].empty() || parts[i].find_first_not_of(kBase64) != std::string::npos) return bad;
  JoinToken token;
  token.url = parts[1];
  token.ca = pem_of(parts[2], "CERTIFICATE");
  token.own.certificate = pem_of(parts[3], "CERTIFICATE");
  token.own.key = pem_of(parts[4], "PRIVATE KEY");
  return token;
}

}  // namespace ckpt::cli
