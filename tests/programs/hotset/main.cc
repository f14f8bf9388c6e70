// SPDX-License-Identifier: Apache-2.0
// hotset: memory with known content, of which a known fraction changes every step (--help). The program
// detects whether a move lost or changed a byte, and measures how long the program was paused.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/programs/hotset/options.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/gpu.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint64_t kMaxBlocks = 1024;
constexpr std::uint64_t kSlices = 64;  // number of slices of the memory; each step checks one slice
constexpr std::int64_t kLookAgainNs = 1'000'000;

volatile std::sig_atomic_t stop_requested = 0;

// Host state that moves with the job.
struct HostState {
  std::uint64_t step = 0;
  std::uint64_t moves = 0;
  Pace pace;
};

class Hotset {
 public:
  explicit Hotset(const Options& options)
      : options_(options),
        kernels_("hotset_kernels"),
        write_(kernels_["write_pages"]),
        check_(kernels_["check_pages"]),
        set_(options.hot_set),
        versions_(pages() * sizeof(std::uint32_t)),
        list_(std::max<std::size_t>(1, set_.list().size()) * sizeof(std::uint32_t)),
        result_(sizeof(std::uint32_t)),
        session_(!options.common.without_ckpt) {
    memory_ = session_.alloc(options.bytes);
    session_.tensor("memory", memory_, CKPT_U8, {options.bytes}, CKPT_BUFFER);
    session_.host_state("hotset", &host_, sizeof host_);
  }

  void run();

 private:
  [[nodiscard]] std::uint64_t pages() const { return options_.hot_set.pages; }
  [[nodiscard]] bool done() const {
    return options_.steps == 0 ? stop_requested != 0 : host_.step >= options_.steps;
  }
  // Returns whether the last step still waits for the file. Barriers continue meanwhile, so that a slow
  // caller can still move a job that is about to end.
  [[nodiscard]] bool held() const {
    return !options_.hold.empty() && host_.step + 1 == options_.steps &&
           ::access(options_.hold.c_str(), F_OK) != 0;
  }
  void fill();
  void take_over();
  void step();
  void write(CUdeviceptr list, std::uint64_t first, std::uint64_t count, std::uint32_t version);
  std::uint32_t differences(CUdeviceptr list, std::uint64_t first, std::uint64_t count);
  void check_range(std::uint64_t first, std::uint64_t count, const char* when);
  void check_written();
  void upload_list() { upload(list_.get(), set_.list().data(), set_.list().size() * sizeof(std::uint32_t)); }
  void print_result();

  Options options_;
  Gpu gpu_;
  Kernels kernels_;
  CUfunction write_;
  CUfunction check_;
  HotSet set_;
  LocalMemory versions_;
  LocalMemory list_;
  LocalMemory result_;
  Session session_;
  CUdeviceptr memory_ = 0;
  HostState host_;
};

void Hotset::write(CUdeviceptr list, std::uint64_t first, std::uint64_t count, std::uint32_t version) {
  launch(write_, std::min(count, kMaxBlocks), kThreads, memory_, versions_.get(), list, first, count, pages(),
         options_.hot_set.seed, version);
}

std::uint32_t Hotset::differences(CUdeviceptr list, std::uint64_t first, std::uint64_t count) {
  check(cuMemsetD8(result_.get(), 0, sizeof(std::uint32_t)), "cuMemsetD8");
  launch(check_, std::min(count, kMaxBlocks), kThreads, memory_, versions_.get(), list, first, count, pages(),
         options_.hot_set.seed, result_.get());
  std::uint32_t result = 0;
  download(&result, result_.get(), sizeof result);
  return result;
}

// Checks the range. Ends the program with a message about the first page whose content is wrong, if there is
// one.
void Hotset::check_range(std::uint64_t first, std::uint64_t count, const char* when) {
  if (differences(0, first, count) == 0) return;
  while (count > 1) {
    const std::uint64_t half = count / 2;
    if (differences(0, first, half) != 0) {
      count = half;
    } else {
      first += half;
      count -= half;
    }
  }
  fail("memory differs from what was written: page " + std::to_string(first % pages()) + " (" + when +
       ", step " + std::to_string(host_.step) + ", moves " + std::to_string(host_.moves) + ")");
}

void Hotset::check_written() {
  if (set_.is_range()) {
    check_range(set_.first(), set_.count(), "just written");
  } else if (differences(list_.get(), 0, set_.count()) != 0) {
    check_range(0, pages(), "just written");
    fail("a page that was just written changed while it was checked");
  }
}

void Hotset::fill() {
  write(0, 0, pages(), 0);
  upload_list();
  gpu_.synchronize();
}

// Derives the expected memory content from the step alone, not from the moved memory.
void Hotset::take_over() {
  host_.moves++;
  set_.catch_up(host_.step);
  upload_list();
  upload(versions_.get(), set_.versions().data(), pages() * sizeof(std::uint32_t));
}

void Hotset::step() {
  const std::uint64_t number = host_.step + 1;
  if (set_.advance(number)) upload_list();
  write(set_.is_range() ? 0 : list_.get(), set_.first(), set_.count(), set_.version_of(number));
  host_.step = number;
  check_written();
  const std::uint64_t slice = number % kSlices;
  const std::uint64_t begin = pages() * slice / kSlices;
  const std::uint64_t count = pages() * (slice + 1) / kSlices - begin;
  if (count > 0) check_range(begin, count, "at rest");
  host_.pace.end_step(number, options_.steps, options_.step_ns);
  if (options_.print_every != 0 && number % options_.print_every == 0) {
    std::printf("step %llu%s\n", static_cast<unsigned long long>(number),
                time_note(options_.common.print_times).c_str());
    std::fflush(stdout);
  }
}

void Hotset::print_result() {
  Digest digest;
  add_device(digest, memory_, options_.bytes);
  const Pace& pace = host_.pace;
  const nlohmann::ordered_json result = {
      {"digest", digest.hex()},
      {"steps", host_.step},
      {"moves", host_.moves},
      {"longest_gap_ms", static_cast<double>(pace.longest_gap_ns) / 1e6},
      {"longest_gap_step_ms", static_cast<double>(pace.longest_gap_step_ns) / 1e6},
      {"longest_gap_step", pace.longest_gap_step}};
  std::printf("%s\n", result.dump().c_str());
}

void Hotset::run() {
  bool moved = session_.ready();
  host_.pace.begin_step();
  if (moved) {
    take_over();
  } else {
    fill();
    host_.pace.forget_gap();
    if (options_.print_every != 0) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
  }
  while (!done()) {
    if (held()) {
      host_.pace.begin_step();
      host_.pace.end_step(host_.step, options_.steps, std::max(options_.step_ns, kLookAgainNs));
      session_.barrier();
      continue;
    }
    if (!moved) host_.pace.begin_step();
    step();
    if (moved) {
      check_range(0, pages(), "after the move");
      host_.pace.forget_gap();
      moved = false;
    }
    session_.barrier();
  }
  check_range(0, pages(), "at the end");
  print_result();
  session_.shutdown();
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  const ckpt::examples::Options options = ckpt::examples::parse_options(argc, argv);
  if (options.steps == 0) {
    for (const int signal : {SIGINT, SIGTERM}) {
      std::signal(signal, [](int) { ckpt::examples::stop_requested = 1; });
    }
  }
  ckpt::examples::Hotset(options).run();
  return 0;
}
