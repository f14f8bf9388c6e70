// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/base/result.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace ncclsim {
namespace {

constexpr std::size_t kMaxTexts = 4096;
constexpr std::size_t kMaxText = 1024;

std::atomic<const char*> last{""};

// Stores each text once. Returns the stored text, which stays valid.
const char* keep(const char* text) {
  static std::mutex mutex;
  static auto* texts = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  if (texts->size() >= kMaxTexts && texts->count(text) == 0)
    return "too many different errors to keep their texts";
  return texts->insert(text).first->c_str();
}

bool prints_warnings() {
  const char* level = std::getenv("NCCL_DEBUG");
  return level != nullptr && *level != '\0' && ::strcasecmp(level, "VERSION") != 0;
}

}  // namespace

ncclResult_t fail(ncclResult_t code, const char* format, ...) {
  char text[kMaxText];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  last = keep(text);
  if (prints_warnings()) std::fprintf(stderr, "ncclsim[%d] WARN %s\n", static_cast<int>(::getpid()), text);
  return code;
}

const char* last_error() {
  return last;
}

}  // namespace ncclsim
