// SPDX-License-Identifier: Apache-2.0
// One list of a record's members, by name. Its wire form (libckpt/protocol/wire/codec.h) and its documents
// (document.h) are made from that list, so that neither can lack a member.
//
// The list is a function beside the record, which is an aggregate. A list that lacks a member does not compile:
//
//   struct Place {
//     std::string node;
//     std::uint32_t gpu = 0;
//   };
//   constexpr auto fields_of(record::Of<Place>) {
//     return record::fields(record::field("node", &Place::node), record::later("gpu", &Place::gpu));
//   }
//
// The wire form has the members in the list's order, without names: new ones go to its end.
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

// Names a type to fields_of and names_of, which are found by it.
template <class T>
struct Of {};

enum class Presence {
  kAlways,   // a document without it is malformed
  kLater,    // older documents lack it: the member keeps its default
  kInlined,  // a record whose fields stand among the owner's own; an optional one: all of them, or none
  kBare,     // the record's only member: its document is the record's
  kNotKept,  // no document and no wire form has it
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

template <class T, class A, class B>
constexpr bool same_member(A T::*a, B T::*b) {
  if constexpr (std::is_same_v<A, B>)
    return a == b;
  else
    return false;
}

template <class F, class... Others>
constexpr bool differs_from(const F& one, const Others&... others) {
  return ((!same_member(one.member, others.member) && (one.name.empty() || one.name != others.name)) && ...);
}

template <class... F>
constexpr bool all_differ(const F&...) {
  return true;
}
template <class F, class G, class... Others>
constexpr bool all_differ(const F& one, const G& other, const Others&... others) {
  return differs_from(one, other, others...) && all_differ(other, others...);
}

}  // namespace detail

// Every member of T once, under names that differ: anything else does not compile. T is an aggregate, or has
// at most twelve members.
template <class T, class... M, Presence... kPresence>
consteval std::tuple<Field<T, M, kPresence>...> fields(Field<T, M, kPresence>... list) {
  check_member_count<T, sizeof...(list)>();
  if (!detail::all_differ(list...)) throw "a member or a name stands twice in the list of fields";
  return {list...};
}

template <class T>
concept Described = requires {
  fields_of(Of<T>{});
};

// A record that stands for its only member.
template <Described T>
consteval bool is_bare() {
  using List = decltype(fields_of(Of<T>{}));
  if constexpr (std::tuple_size_v<List> == 1)
    return std::tuple_element_t<0, List>::kKept == Presence::kBare;
  else
    return false;
}

// Calls with each field of T's list, in its order.
template <Described T, class Call>
constexpr void for_each_field(Call&& call) {
  std::apply([&call](const auto&... field) { (call(field), ...); }, fields_of(Of<T>{}));
}

// Calls with each member that has a wire form, in the list's order.
template <class T, class Call>
requires Described<std::remove_const_t<T>>
constexpr void with_members(T& value, Call&& call) {
  for_each_field<std::remove_const_t<T>>([&](const auto& field) {
    if constexpr (std::remove_cvref_t<decltype(field)>::kKept != Presence::kNotKept)
      call(value.*field.member);
  });
}

}  // namespace ckpt::record
