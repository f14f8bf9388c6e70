// SPDX-License-Identifier: Apache-2.0
// The path of a driver call through the shim, by the kind of the function's row in every_function.def.
// Through<Row>::call has the type of the function itself, so one template serves every parameter list.
// Threads: any. Errors: a function that the real driver lacks returns lacking_answer().
#pragma once

#include <cstdint>

#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

enum class Kind : std::uint8_t { kHook, kGate, kQuery, kRefuse };

// A row as a type: its name, its position in RealDriver, its kind, and its hook if it has one.
#define CKPT_SHIM_TRAITS_hook(function)      \
  static constexpr Kind kKind = Kind::kHook; \
  static constexpr auto kHook = &hook::function;
#define CKPT_SHIM_TRAITS_gate(function) static constexpr Kind kKind = Kind::kGate;
#define CKPT_SHIM_TRAITS_query(function) static constexpr Kind kKind = Kind::kQuery;
#define CKPT_SHIM_TRAITS_refuse(function) static constexpr Kind kKind = Kind::kRefuse;
#define CKPT_DRIVER_FUNCTION(function, kind)             \
  struct Row_##function {                                \
    static constexpr const char* kName = #function;      \
    static constexpr auto kReal = &RealDriver::function; \
    CKPT_SHIM_TRAITS_##kind(function)                    \
  };
#include "libckpt/inprocess/shim/core/every_function.def"
#undef CKPT_DRIVER_FUNCTION
#undef CKPT_SHIM_TRAITS_hook
#undef CKPT_SHIM_TRAITS_gate
#undef CKPT_SHIM_TRAITS_query
#undef CKPT_SHIM_TRAITS_refuse

template <class Row, class Function>
struct Through;

template <class Row, class... A>
struct Through<Row, CUresult (*RealDriver::*)(A...)> {
  static CUresult call(A... arguments) {
    const auto function = real().*Row::kReal;
    if (function == nullptr) [[unlikely]] {
      return lacking_answer();
    }
    if constexpr (Row::kKind == Kind::kHook) {
      if (!forgotten()) [[likely]] {
        const GateScope scope(Row::kName);
        return Row::kHook(arguments...);
      }
    }
    if constexpr (Row::kKind == Kind::kQuery || Row::kKind == Kind::kHook) {
      return function(arguments...);
    } else {
      const GateScope scope(Row::kName);
      const CUresult result = function(arguments...);
      if constexpr (Row::kKind == Kind::kRefuse) {
        if (result == CUDA_SUCCESS) not_movable(Row::kName);
      }
      if (result == CUDA_SUCCESS) note_first_context();
      return result;
    }
  }
};

template <class Row>
inline constexpr auto kThrough = &Through<Row, std::remove_const_t<decltype(Row::kReal)>>::call;

}  // namespace ckpt::shim
