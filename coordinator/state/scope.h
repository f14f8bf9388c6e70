// SPDX-License-Identifier: Apache-2.0
// The operand of an operator's command: a node, or one GPU of it; text form "node-a" or "node-a:0". Pure
// values.
#pragma once

#include <optional>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct Scope {
  Scope() = default;
  Scope(std::string node_name, std::optional<std::uint32_t> gpu_index)
      : node(std::move(node_name)), gpu(gpu_index) {}
  friend bool operator==(const Scope&, const Scope&) = default;
  [[nodiscard]] bool covers(const Place& place) const {
    return place.node == node && (!gpu || *gpu == place.gpu);
  }

  std::string node;
  std::optional<std::uint32_t> gpu;
};
template <std::same_as<Scope> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::later("gpu", &T::gpu));
}

[[nodiscard]] std::string to_text(const Scope& scope);
// Parses NODE or NODE:GPU. Returns kInvalidArgument for any other text.
Result<Scope> parse_scope(const std::string& text);

}  // namespace ckpt::coordinator
