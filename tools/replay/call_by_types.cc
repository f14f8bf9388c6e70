// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <initializer_list>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "libckpt/cuda/interop_functions.h"
#include "tools/replay/calls.h"

namespace ckpt::replay {
namespace {

using Make = Outcome (*)(void* function, Surroundings&, const TracedCall&, const Manner&);

template <class Function>
struct ByTypes;

template <class... A>
struct ByTypes<CUresult(A...)> {
  static Outcome make(void* function, Surroundings& surroundings, const TracedCall& call,
                      const Manner& manner) {
    if (call.values.size() != sizeof...(A)) return left_out("it has another number of arguments here");
    return make(function, surroundings.objects, call, manner, std::index_sequence_for<A...>());
  }

 private:
  template <std::size_t... I>
  static Outcome make(void* function, Objects& objects, const TracedCall& call, const Manner& manner,
                      std::index_sequence<I...>) {
    std::tuple<Slot<A>...> slots{Slot<A>(call.values[I], manner, objects)...};
    for (const char* obstacle : std::initializer_list<const char*>{std::get<I>(slots).obstacle()...}) {
      if (obstacle != nullptr) return left_out(obstacle);
    }
    const CUresult result = reinterpret_cast<CUresult (*)(A...)>(function)(std::get<I>(slots).get()...);
    if (result == CUDA_SUCCESS && call.result == CUDA_SUCCESS)
      (std::get<I>(slots).learn(objects, manner, call.values[I]), ...);
    return made(result);
  }
};

const std::unordered_map<std::string_view, Make>& table() {
  static const std::unordered_map<std::string_view, Make> kTable = {
#define CKPT_DRIVER_FUNCTION(name, kind) {#name, &ByTypes<decltype(::name)>::make},
#include "libckpt/cuda/driver_functions.def"
#undef CKPT_DRIVER_FUNCTION
  };
  return kTable;
}

}  // namespace

Outcome call_by_types(Surroundings& surroundings, const TracedCall& call, const Manner& manner) {
  const auto found = table().find(call.name);
  if (found == table().end()) return left_out("this cuda.h does not have it");
  void* function = ::dlsym(surroundings.driver, call.name.c_str());
  if (function == nullptr) return left_out("this driver does not have it");
  return found->second(function, surroundings, call, manner);
}

}  // namespace ckpt::replay
