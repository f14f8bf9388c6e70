// SPDX-License-Identifier: Apache-2.0
// One list of a record's members, by name. Its wire form (libckpt/protocol/wire/codec.h) and its documents
// (document.h) are both made from that list, so that neither can lack a member.
//
// The list is a function in the record's namespace. It is a template, so that it adds compile time only to
// sources that use it. A list that lacks a member does not compile:
//
//   struct Place {
//     std::string node;
//     std::uint32_t gpu = 0;
//   };
//   template <std::same_as<Place> T>
//   constexpr auto fields_of(record::Of<T>) {
//     return record::fields(record::field("node", &T::node), record::later("gpu", &T::gpu));
//   }
//
// The wire form has the members in the list's order, without names, so append new members at its end.
// Threads: constants. Ownership: names are literals. Errors: none at run time.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "libckpt/record/member_count.h"

namespace ckpt::record {

// A tag that names a type to fields_of and names_of. Argument-dependent lookup finds these functions by this
// tag.
template <class T>
struct Of {};

enum class Presence {
  kAlways,   // a document without the field is malformed
  kLater,    // older documents lack the field, and the member keeps its default
  kInlined,  // a record whose fields are among the owner's own fields; an optional record has all of them, or
             // none
  kBare,     // the record's only member, whose document is the record's document
  kNotKept,  // a member without a document and without a wire form
};

template <class T, class M, Presence kPresence>
struct Field {
  using Member = M;
  static constexpr Presence kKept = kPresence;
  std::string_view name;
  M T::*member;
};

template <class T, class M>
constexpr Field<T, M, Presence::kAlways> field(std::string_view name, M T::*member) {
  return {name, member};
}
template <class T, class M>
constexpr Field<T, M, Presence::kLater> later(std::string_view name, M T::*member) {
  return {name, member};
}
template <class T, class M>
constexpr Field<T, M, Presence::kInlined> inlined(M T::*member) {
  return {{}, member};
}
template <class T, class M>
constexpr Field<T, M, Presence::kBare> bare(M T::*member) {
  return {{}, member};
}
template <class T, class M>
constexpr Field<T, M, Presence::kNotKept> not_kept(M T::*member) {
  return {{}, member};
}

namespace detail {

// Returns whether the field is this member. Only members of one type can be the same.
template <class P, class F>
constexpr bool is_member(P member, const F& field) {
  if constexpr (std::is_same_v<P, decltype(field.member)>)
    return member == field.member;
  else
    return false;
}

}  // namespace detail

// Makes the list: every member of T once, under different names. Anything else does not compile. T is an
// aggregate, or has at most twelve members.
template <class T, class... M, Presence... kPresence>
consteval std::tuple<Field<T, M, kPresence>...> fields(Field<T, M, kPresence>... list) {
  check_member_count<T, sizeof...(list)>();
  const std::string_view names[] = {list.name...};
  for (std::size_t i = 0; i < sizeof...(list); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!names[i].empty() && names[i] == names[j]) throw "a name is listed twice in the list of fields";
  const auto times_listed = [&](auto member) { return (std::size_t{detail::is_member(member, list)} + ...); };
  if (((times_listed(list.member) != 1) || ...)) throw "a member is listed twice in the list of fields";
  return {list...};
}

template <class T>
concept Described = requires {
  fields_of(Of<T>{});
};

// Returns whether the record is represented by its only member.
template <Described T>
consteval bool is_bare() {
  using List = decltype(fields_of(Of<T>{}));
  if constexpr (std::tuple_size_v<List> == 1)
    return std::tuple_element_t<0, List>::kKept == Presence::kBare;
  else
    return false;
}

// Calls `call` with each field of T's list, in its order.
template <Described T, class Call>
constexpr void for_each_field(Call&& call) {
  std::apply([&call](const auto&... field) { (call(field), ...); }, fields_of(Of<T>{}));
}

// Calls `call` with each member that has a wire form, in the list's order.
template <class T, class Call>
requires Described<std::remove_const_t<T>>
constexpr void with_members(T& value, Call&& call) {
  for_each_field<std::remove_const_t<T>>([&](const auto& field) {
    if constexpr (std::remove_cvref_t<decltype(field)>::kKept != Presence::kNotKept)
      call(value.*field.member);
  });
}

}  // namespace ckpt::record
