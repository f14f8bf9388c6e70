// SPDX-License-Identifier: Apache-2.0
// Puts the parts of a vault's list together (wire::VaultContents): nothing of it counts before the last has
// come.
// Threads: one. Ownership: the ImageReports'. Errors: none; a list that lacks a part, or is too long, is
// dropped with a warning.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::coordinator {

inline constexpr std::size_t kMaxListedImages = 100'000;  // of a vault

class ContentsParts {
 public:
  // The whole list, with its last part.
  std::optional<wire::VaultContents> add(const std::string& node, wire::VaultContents part);

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // node, folder, job
  std::map<Key, wire::VaultContents> begun_;
};

}  // namespace ckpt::coordinator
