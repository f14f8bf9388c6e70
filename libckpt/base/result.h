// SPDX-License-Identifier: Apache-2.0
// Result<T>: a T or an Error (Boost.Outcome, terminating on misuse, so no exceptions in a user's process).
//   Result<int> f();
//   CKPT_TRY(value, f());     declares `value` (auto&&) or returns the error
//   CKPT_TRYV(g());           for Result<void>
//   CKPT_CO_TRY(value, co_await h());  CKPT_CO_TRYV(co_await h());   in coroutines that return Result
#pragma once

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/policy/terminate.hpp>
#include <utility>

#include "libckpt/base/error.h"

namespace ckpt {

template <class T>
using Result = boost::outcome_v2::basic_result<T, Error, boost::outcome_v2::policy::terminate>;

[[nodiscard]] inline auto ok() {
  return boost::outcome_v2::success();
}

}  // namespace ckpt

#define CKPT_CONCAT_INNER(a, b) a##b
#define CKPT_CONCAT(a, b) CKPT_CONCAT_INNER(a, b)
#define CKPT_TRY_IMPL(return_keyword, holder, name, ...)                      \
  auto&& holder = (__VA_ARGS__);                                              \
  if (!holder.has_value()) return_keyword ::std::move(holder).assume_error(); \
  auto&& name = ::std::move(holder).assume_value()
#define CKPT_TRYV_IMPL(return_keyword, holder, ...) \
  auto&& holder = (__VA_ARGS__);                    \
  if (!holder.has_value()) return_keyword ::std::move(holder).assume_error()

#define CKPT_TRY(name, ...) CKPT_TRY_IMPL(return, CKPT_CONCAT(ckpt_try_, __COUNTER__), name, __VA_ARGS__)
#define CKPT_TRYV(...) CKPT_TRYV_IMPL(return, CKPT_CONCAT(ckpt_try_, __COUNTER__), __VA_ARGS__)
#define CKPT_CO_TRY(name, ...) \
  CKPT_TRY_IMPL(co_return, CKPT_CONCAT(ckpt_try_, __COUNTER__), name, __VA_ARGS__)
#define CKPT_CO_TRYV(...) CKPT_TRYV_IMPL(co_return, CKPT_CONCAT(ckpt_try_, __COUNTER__), __VA_ARGS__)
