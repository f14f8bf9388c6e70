// SPDX-License-Identifier: Apache-2.0
// The driver functions, each under its own name. An ifunc has the type of the function and no body of its
// own. The loader calls the resolver for the address, which is the template's instance.
#include "libckpt/inprocess/shim/functions/exports.h"

#include <algorithm>
#include <array>
#include <vector>

#include "libckpt/inprocess/shim/functions/kinds.h"

extern "C" {
#define CKPT_DRIVER_FUNCTION(name, kind)                 \
  static decltype(&::name) ckpt_resolve_##name() {       \
    return ckpt::shim::kThrough<ckpt::shim::Row_##name>; \
  }                                                      \
  decltype(::name) name __attribute__((ifunc("ckpt_resolve_" #name), visibility("default")));
#include "libckpt/inprocess/shim/core/every_function.def"
#undef CKPT_DRIVER_FUNCTION
}

namespace ckpt::shim {
namespace {

constexpr std::string_view kNames[] = {
#define CKPT_DRIVER_FUNCTION(name, kind) #name,
#include "libckpt/inprocess/shim/core/every_function.def"
#undef CKPT_DRIVER_FUNCTION
};
constexpr std::size_t kCount = std::size(kNames);
static_assert(sizeof(RealDriver) == kCount * sizeof(void*));

constexpr auto kOrder = [] {  // the rows sorted by name
  std::array<std::uint16_t, kCount> order{};
  for (std::size_t i = 0; i < kCount; ++i) order[i] = static_cast<std::uint16_t>(i);
  std::sort(order.begin(), order.end(),
            [](std::uint16_t a, std::uint16_t b) { return kNames[a] < kNames[b]; });
  return order;
}();

const Exported kExported[] = {
#define CKPT_DRIVER_FUNCTION(name, kind) {#name, reinterpret_cast<void*>(kThrough<Row_##name>)},
#include "libckpt/inprocess/shim/core/every_function.def"
#undef CKPT_DRIVER_FUNCTION
};

void* real_at(std::size_t row) noexcept {
  return reinterpret_cast<void* const*>(&real())[row];
}

// Returns the rows that the real driver has, sorted by its function's address. Two names may share a function
// in the driver.
const std::vector<std::uint16_t>& rows_by_address() {
  static const auto* const sorted = [] {
    auto* rows = new std::vector<std::uint16_t>;
    for (std::size_t row = 0; row < kCount; ++row) {
      if (real_at(row) != nullptr) rows->push_back(static_cast<std::uint16_t>(row));
    }
    std::sort(rows->begin(), rows->end(), [](auto a, auto b) { return real_at(a) < real_at(b); });
    return rows;
  }();
  return *sorted;
}

// Returns whether `name` is `symbol` with a version, a kind of stream, both or neither.
bool is_version_of(std::string_view name, std::string_view symbol) {
  if (!name.starts_with(symbol)) return false;
  const std::string_view rest = name.substr(symbol.size());
  return rest.empty() || rest.starts_with("_v") || rest.starts_with("_pt");
}

}  // namespace

const Exported* exported_by_name(std::string_view name) noexcept {
  const auto* found =
      std::lower_bound(kOrder.begin(), kOrder.end(), name,
                       [](std::uint16_t row, std::string_view text) { return kNames[row] < text; });
  return found == kOrder.end() || kNames[*found] != name ? nullptr : &kExported[*found];
}

void* real_of(const Exported& exported) noexcept {
  return real_at(static_cast<std::size_t>(&exported - kExported));
}

void* exported_for(void* function, std::string_view symbol) noexcept {
  const auto& rows = rows_by_address();
  auto at = std::lower_bound(rows.begin(), rows.end(), function,
                             [](auto row, void* address) { return real_at(row) < address; });
  void* answer = function;
  for (; at != rows.end() && real_at(*at) == function; ++at) {
    if (is_version_of(kNames[*at], symbol)) return kExported[*at].function;
    if (answer == function) answer = kExported[*at].function;
  }
  return answer;
}

}  // namespace ckpt::shim
