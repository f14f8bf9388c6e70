// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/base/faults.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "tests/simulators/ncclsim/base/settings.h"

namespace ncclsim {
namespace {

constexpr int kMaxLines = 1000;

struct Name {
  const char* text;
  Fault::Kind kind;
  bool has_value;
};
constexpr Name kNames[] = {
    {"init-delay", Fault::Kind::kInitDelay, true},
    {"init-endless", Fault::Kind::kInitEndless, false},
    {"async-error", Fault::Kind::kAsyncError, true},
    {"drop-peer", Fault::Kind::kDropPeer, true},
};

bool to_number(const std::string& text, std::int64_t* out) {
  char* end = nullptr;
  *out = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && *out >= 0 && *out <= 1000000000;
}

struct Statement {
  Fault fault;
  std::optional<std::int64_t> rank;
  std::string communicator;
};

// Parses a line: KIND [VALUE] [rank=N] [comm=NAME]
bool parse(const std::string& line, Statement* out) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  const Name* found = nullptr;
  for (const Name& name : kNames) {
    if (word == name.text) found = &name;
  }
  if (found == nullptr) return false;
  out->fault.kind = found->kind;
  if (found->has_value && (!(words >> word) || !to_number(word, &out->fault.value))) return false;
  while (words >> word) {
    std::int64_t number = 0;
    if (word.rfind("comm=", 0) == 0) {
      out->communicator = word.substr(5);
    } else if (word.rfind("rank=", 0) == 0 && to_number(word.substr(5), &number)) {
      out->rank = number;
    } else {
      return false;
    }
  }
  return true;
}

std::vector<Fault> read_file(const std::string& path, int rank, const std::string& communicator) {
  std::vector<Fault> faults;
  std::ifstream file(path);
  std::string line;
  for (int i = 0; i < kMaxLines && std::getline(file, line); i++) {
    if (line.empty() || line[0] == '#') continue;
    Statement statement;
    if (!parse(line, &statement)) {
      [[maybe_unused]] const ncclResult_t warned =
          fail(ncclSuccess, "NCCLSIM_FAULTS: no fault: %s", line.c_str());
      continue;
    }
    if (statement.rank.has_value() && *statement.rank != rank) continue;
    if (!statement.communicator.empty() && statement.communicator != communicator) continue;
    faults.push_back(statement.fault);
  }
  return faults;
}

}  // namespace

std::int64_t init_delay(int rank, const std::string& communicator) {
  if (number_of("NCCLSIM_INIT_ENDLESS", 0) != 0) return -1;
  std::int64_t delay = number_of("NCCLSIM_INIT_DELAY_MS", 0);
  for (const Fault& fault : read_file(text_of("NCCLSIM_FAULTS"), rank, communicator)) {
    if (fault.kind == Fault::Kind::kInitEndless) return -1;
    if (fault.kind == Fault::Kind::kInitDelay) delay = fault.value;
  }
  return delay > 0 ? delay : 0;
}

Faults::Faults(int rank, std::string communicator) : rank_(rank), communicator_(std::move(communicator)) {
  const std::string path = text_of("NCCLSIM_FAULTS");
  if (path.empty()) return;
  fresh_ = true;
  watch_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  // Watches the folder, since the file may be created later or be replaced.
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  ::inotify_add_watch(watch_, folder.empty() ? "." : folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO);
}

Faults::~Faults() {
  if (watch_ >= 0) ::close(watch_);
}

std::vector<Fault> Faults::take() {
  if (watch_ < 0) return {};
  const std::string path = text_of("NCCLSIM_FAULTS");
  const std::string name = std::filesystem::path(path).filename();
  alignas(inotify_event) char events[4096];
  for (ssize_t got = 0; (got = ::read(watch_, events, sizeof events)) > 0;) {
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      fresh_ = fresh_ || (event->len > 0 && name == event->name);
      at += static_cast<ssize_t>(sizeof *event + event->len);
    }
  }
  return std::exchange(fresh_, false) ? read_file(path, rank_, communicator_) : std::vector<Fault>{};
}

}  // namespace ncclsim
