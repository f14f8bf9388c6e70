// SPDX-License-Identifier: Apache-2.0
// The functions that libckpt_shim.so exports, as a table. It maps a name, or a function of the real driver,
// to the shim's function.
// Threads: any. Errors: null if there is none.
#pragma once

#include <string_view>

namespace ckpt::shim {

struct Exported {
  const char* name;
  void* function;  // the shim's function of this name
};

[[nodiscard]] const Exported* exported_by_name(std::string_view name) noexcept;

// Returns the real driver's function for this exported function. Returns null if the driver lacks it.
[[nodiscard]] void* real_of(const Exported& exported) noexcept;

// Returns the function that the program gets if the real driver returned `function` for `symbol` (a name
// without its version). It is the shim's function, or `function` itself if the shim has none.
[[nodiscard]] void* exported_for(void* function, std::string_view symbol) noexcept;

}  // namespace ckpt::shim
