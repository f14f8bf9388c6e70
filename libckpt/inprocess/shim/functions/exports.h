// SPDX-License-Identifier: Apache-2.0
// The functions that libckpt_shim.so exports, as a table: from a name, or from a function of the real driver,
// to the shim's.
// Threads: any. Errors: null, where there is none.
#pragma once

#include <string_view>

namespace ckpt::shim {

struct Exported {
  const char* name;
  void* function;  // the shim's
};

[[nodiscard]] const Exported* exported_by_name(std::string_view name) noexcept;

// The real driver's function of this exported one; null if it lacks it.
[[nodiscard]] void* real_of(const Exported& exported) noexcept;

// Returns the function that the program gets where the real driver handed out `function` for `symbol` (a name
// without its version): the shim's; `function` itself where the shim has none.
[[nodiscard]] void* exported_for(void* function, std::string_view symbol) noexcept;

}  // namespace ckpt::shim
