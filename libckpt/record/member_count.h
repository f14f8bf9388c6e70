// SPDX-License-Identifier: Apache-2.0
// Proves at compile time that a list of a struct's members has all of them.
// Threads: nothing runs. Errors: a list that is too short or too long does not compile.
#pragma once

#include <boost/pfr/tuple_size.hpp>
#include <cstddef>
#include <type_traits>

namespace ckpt::record {

// Decomposes a struct with its own constructors and at most twelve public members: only the compiler's own
// decomposition counts those.
template <std::size_t kListed, class T>
constexpr void decompose([[maybe_unused]] T& value) {
  static_assert(kListed > 0 && kListed <= 12, "a struct with constructors has one to twelve members here");
  if constexpr (kListed == 1) {
    [[maybe_unused]] auto& [a] = value;
  } else if constexpr (kListed == 2) {
    [[maybe_unused]] auto& [a, b] = value;
  } else if constexpr (kListed == 3) {
    [[maybe_unused]] auto& [a, b, c] = value;
  } else if constexpr (kListed == 4) {
    [[maybe_unused]] auto& [a, b, c, d] = value;
  } else if constexpr (kListed == 5) {
    [[maybe_unused]] auto& [a, b, c, d, e] = value;
  } else if constexpr (kListed == 6) {
    [[maybe_unused]] auto& [a, b, c, d, e, f] = value;
  } else if constexpr (kListed == 7) {
    [[maybe_unused]] auto& [a, b, c, d, e, f, g] = value;
  } else if constexpr (kListed == 8) {
    [[maybe_unused]] auto& [a, b, c, d, e, f, g, h] = value;
  } else if constexpr (kListed == 9) {
    [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i] = value;
  } else if constexpr (kListed == 10) {
    [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i, j] = value;
  } else if constexpr (kListed == 11) {
    [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
  } else {
    [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
  }
}

// Compiles only if T has as many members as the list.
template <class T, std::size_t kListed>
constexpr void check_member_count() {
  if constexpr (std::is_aggregate_v<T>)
    static_assert(kListed == boost::pfr::tuple_size_v<T>,
                  "the list must have as many entries as there are members");
  else
    static_cast<void>(&decompose<kListed, T>);
}

}  // namespace ckpt::record
