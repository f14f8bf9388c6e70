// SPDX-License-Identifier: Apache-2.0
// The texts of an enum's values: one table in the enum's namespace, for documents and for people.
//
//   enum class Side : std::uint8_t { kSource = 1, kTarget };
//   constexpr auto names_of(record::Of<Side>) {
//     return record::names<Side>({{Side::kSource, "source"}, {Side::kTarget, "target"}});
//   }
//
// Threads: constants. Errors: a table with a repeated value or text does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "libckpt/record/fields.h"

namespace ckpt::record {

template <class E, std::size_t kCount>
using Names = std::array<std::pair<E, std::string_view>, kCount>;

template <class E, std::size_t kCount>
consteval Names<E, kCount> names(const std::pair<E, std::string_view> (&list)[kCount]) {
  Names<E, kCount> table{};
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (list[i].first == list[j].first || list[i].second == list[j].second)
        throw "a value or a text is listed twice in the table of names";
    table[i] = list[i];
  }
  return table;
}

template <class E>
concept Named = std::is_enum_v<E> && requires {
  names_of(Of<E>{});
};

// Returns the name. Returns "unknown" for a value that is not in the table.
template <Named E>
constexpr std::string_view name_of(E value) noexcept {
  constexpr auto kNames = names_of(Of<E>{});
  for (const auto& [known, name] : kNames)
    if (known == value) return name;
  return "unknown";
}

template <Named E>
constexpr std::optional<E> value_named(std::string_view text) noexcept {
  constexpr auto kNames = names_of(Of<E>{});
  for (const auto& [known, name] : kNames)
    if (name == text) return known;
  return std::nullopt;
}

template <Named E>
constexpr bool has_name(E value) noexcept {
  constexpr auto kNames = names_of(Of<E>{});
  for (const auto& [known, name] : kNames)
    if (known == value) return true;
  return false;
}

}  // namespace ckpt::record
