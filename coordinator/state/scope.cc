// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/scope.h"

#include <charconv>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

std::string to_text(const Scope& scope) {
  return scope.gpu ? scope.node + ":" + std::to_string(*scope.gpu) : scope.node;
}

Result<Scope> parse_scope(const std::string& text) {
  const auto bad = [&] {
    return Error(ErrorCode::kInvalidArgument, "\"" + text + "\" is neither NODE nor NODE:GPU");
  };
  const auto colon = text.rfind(':');
  const std::string node = text.substr(0, colon);
  if (!valid_job_name(node))
    return bad();  // node names permit the same characters as job names, so the same
                   // check applies
  if (colon == std::string::npos) return Scope(node, std::nullopt);
  std::uint32_t gpu = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data() + colon + 1, end, gpu);
  if (failure != std::errc{} || at != end) return bad();
  return Scope(node, gpu);
}

}  // namespace ckpt::coordinator
