// SPDX-License-Identifier: Apache-2.0
// Result<T>: a T or an Error (Boost.Outcome).
//   Result<int> f();
//   if (auto found = f()) use(*found); else report(found.error());
//   CKPT_TRY(value, f());     declares `value` (auto&&) or returns the error
//   CKPT_TRYV(g());           for Result<void>
//   CKPT_CO_TRY(value, co_await h());  CKPT_CO_TRYV(co_await h());   in coroutines that return Result
//
// `*r`, `r->`, `r.value()` and `r.error()` are checked in every build. Misuse aborts the process, because a
// user's program could catch an exception. `*std::move(r)` moves the value out.
#pragma once

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/policy/base.hpp>
#include <memory>
#include <type_traits>
#include <utility>

#include "libckpt/base/error.h"

namespace ckpt {
namespace detail {

// Writes a line to standard error and raises SIGABRT. `held` is the error that is stored instead of the
// value; null means that there is none.
[[noreturn]] void end_on_misuse(const Error* held) noexcept;

struct EndOnMisuse : boost::outcome_v2::policy::base {
  template <class R>
  static constexpr void wide_value_check(R&& result) noexcept {
    if (!base::_has_value(result)) [[unlikely]]
      end_on_misuse(&base::_error(result));
  }
  template <class R>
  static constexpr void wide_error_check(R&& result) noexcept {
    if (!base::_has_error(result)) [[unlikely]]
      end_on_misuse(nullptr);
  }
};

}  // namespace detail

template <class T>
class [[nodiscard]] Result : public boost::outcome_v2::basic_result<T, Error, detail::EndOnMisuse> {
  using Base = boost::outcome_v2::basic_result<T, Error, detail::EndOnMisuse>;
  using Value = std::add_lvalue_reference_t<T>;
  using ConstValue = std::add_lvalue_reference_t<const T>;
  using MovedValue = std::add_rvalue_reference_t<T>;

 public:
  using Base::Base;

  ConstValue operator*() const& requires(!std::is_void_v<T>) { return Base::value(); }
  Value operator*() & requires(!std::is_void_v<T>) { return Base::value(); }
  MovedValue operator*() && requires(!std::is_void_v<T>) { return std::move(*this).Base::value(); }
  auto operator->() const requires(!std::is_void_v<T>) { return std::addressof(Base::value()); }
  auto operator->() requires(!std::is_void_v<T>) { return std::addressof(Base::value()); }
};

[[nodiscard]] inline auto ok() {
  return boost::outcome_v2::success();
}

}  // namespace ckpt

#define CKPT_CONCAT_INNER(a, b) a##b
#define CKPT_CONCAT(a, b) CKPT_CONCAT_INNER(a, b)
#define CKPT_TRY_IMPL(return_keyword, holder, name, ...)               \
  auto&& holder = (__VA_ARGS__);                                       \
  if (!holder.has_value()) return_keyword ::std::move(holder).error(); \
  auto&& name = *::std::move(holder)
#define CKPT_TRYV_IMPL(return_keyword, holder, ...) \
  auto&& holder = (__VA_ARGS__);                    \
  if (!holder.has_value()) return_keyword ::std::move(holder).error()

#define CKPT_TRY(name, ...) CKPT_TRY_IMPL(return, CKPT_CONCAT(ckpt_try_, __COUNTER__), name, __VA_ARGS__)
#define CKPT_TRYV(...) CKPT_TRYV_IMPL(return, CKPT_CONCAT(ckpt_try_, __COUNTER__), __VA_ARGS__)
#define CKPT_CO_TRY(name, ...) \
  CKPT_TRY_IMPL(co_return, CKPT_CONCAT(ckpt_try_, __COUNTER__), name, __VA_ARGS__)
#define CKPT_CO_TRYV(...) CKPT_TRYV_IMPL(co_return, CKPT_CONCAT(ckpt_try_, __COUNTER__), __VA_ARGS__)
