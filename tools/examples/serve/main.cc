// SPDX-License-Identifier: Apache-2.0
// serve: constant weights and a cache that grows by appending (--help). A request appends a row of the cache
// for each token of its prompt. Then it finds the weights and the cached rows that best match the last row.
// The next prompt depends on the answer, so one wrong byte that is used changes all later answers.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tools/common/units.h"
#include "tools/examples/common/command_line.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/gpu.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kWidth = 64;  // floats of a row, and threads of a block
constexpr std::uint64_t kRowBytes = kWidth * sizeof(float);
constexpr std::uint64_t kPromptRows = 256;  // rows that a request appends
constexpr std::uint64_t kScored = 4096;     // rows of weights and of the cache that a request reads

struct Options {
  std::uint64_t weight_rows = 0;
  std::uint64_t cache_rows = 0;
  std::uint64_t seed = 1;
  std::uint64_t requests = 500;
  std::uint64_t print_every = 50;
  std::int64_t request_ns = 0;
  CommonOptions common;
};

// Host state that moves with the job. Answers form a chain: each answer is hashed with the hash of all
// earlier answers.
struct HostState {
  std::uint64_t request = 0;
  std::uint64_t moves = 0;
  std::uint64_t chain_low = 0;
  std::uint64_t chain_high = 0;
  Pace pace;
};

Options parse_options(int argc, char** argv) {
  Options options;
  std::string weights = "256MiB";
  std::string cache = "256MiB";
  double request_ms = 0;
  CommandLine app("Answers requests from constant weights and a growing cache.");
  app.add_option("--weights", weights, "Bytes of weights (256MiB)");
  app.add_option("--cache", cache, "Bytes of the cache; once full, its oldest rows are replaced (256MiB)");
  app.add_option("--seed", options.seed, "Seed of weights and requests (1)").not_negative();
  app.add_option("--requests", options.requests, "Requests to answer (500)").not_negative();
  app.add_option("--request-ms", request_ms, "Minimum duration of a request in milliseconds (0)");
  app.add_option("--print-every", options.print_every, "Print a line every N requests (50); 0: never")
      .not_negative();
  add_common_options(app, options.common);
  parse_or_exit(app, argc, argv);
  options.weight_rows = value_or_usage("--weights", tools::parse_size(weights)) / kRowBytes;
  options.cache_rows = value_or_usage("--cache", tools::parse_size(cache)) / kRowBytes;
  // The cache holds whole prompts only, so that no prompt both reads and replaces a row.
  options.cache_rows -= options.cache_rows % kPromptRows;
  if (options.weight_rows == 0)
    fail("--weights must be at least " + std::to_string(kRowBytes) + " bytes", kUsage);
  if (options.cache_rows < 2 * kPromptRows) {
    fail("--cache must be at least " + std::to_string(2 * kPromptRows * kRowBytes) + " bytes", kUsage);
  }
  if (!(request_ms >= 0) || request_ms > 3.6e6) fail("--request-ms must be from 0 to 3600000", kUsage);
  options.request_ns = static_cast<std::int64_t>(request_ms * 1e6);
  return options;
}

class Server {
 public:
  explicit Server(const Options& options)
      : options_(options),
        kernels_("serve_kernels"),
        scores_(kScored * sizeof(float)),
        answer_(sizeof(Answer)),
        session_(!options.common.without_ckpt) {
    weights_ = session_.alloc(options.weight_rows * kRowBytes);
    cache_ = session_.alloc(options.cache_rows * kRowBytes);
    session_.tensor("weights", weights_, CKPT_F32, {options.weight_rows, kWidth}, CKPT_PARAMETER);
    session_.tensor("cache", cache_, CKPT_F32, {options.cache_rows, kWidth}, CKPT_CACHE);
    session_.host_state("serve", &host_, sizeof host_);
  }

  void run();

 private:
  struct Answer {
    float score = 0;
    float place = 0;
  };

  void fill();
  void answer_request();
  Answer best(CUdeviceptr rows, std::uint64_t row_count, std::uint64_t start, std::uint64_t query);
  void chain(const Answer& from_weights, const Answer& from_cache);
  void print_result();

  Options options_;
  Gpu gpu_;
  Kernels kernels_;
  LocalMemory scores_;
  LocalMemory answer_;
  Session session_;
  CUdeviceptr weights_ = 0;
  CUdeviceptr cache_ = 0;
  HostState host_;
};

void Server::fill() {
  launch(kernels_["fill_weights"], 256, 256, weights_, options_.weight_rows * kWidth, options_.seed << 32);
  // Rows that have not been appended are zero, so that the whole cache has a defined content.
  check(cuMemsetD8(cache_, 0, options_.cache_rows * kRowBytes), "cuMemsetD8");
  gpu_.synchronize();
  host_.chain_low = options_.seed;
}

Server::Answer Server::best(CUdeviceptr rows, std::uint64_t row_count, std::uint64_t start,
                            std::uint64_t query) {
  const std::uint64_t scored = std::min(kScored, row_count);
  launch(kernels_["score_rows"], scored, kWidth, rows, cache_, row_count, start, query, scores_.get());
  launch(kernels_["best_score"], 1, kWidth, scores_.get(), scored, answer_.get());
  Answer answer;
  download(&answer, answer_.get(), sizeof answer);
  return answer;
}

void Server::chain(const Answer& from_weights, const Answer& from_cache) {
  struct {
    std::uint64_t low, high;
    Answer weights, cache;
  } link = {host_.chain_low, host_.chain_high, from_weights, from_cache};
  const XXH128_hash_t hash = XXH3_128bits(&link, sizeof link);
  host_.chain_low = hash.low64;
  host_.chain_high = hash.high64;
}

void Server::answer_request() {
  const std::uint64_t first = host_.request * kPromptRows;
  launch(kernels_["append_rows"], kPromptRows, kWidth, weights_, cache_, options_.weight_rows,
         options_.cache_rows, first, host_.chain_low);
  const std::uint64_t rows = std::min(first + kPromptRows, options_.cache_rows);
  const std::uint64_t query = (first + kPromptRows - 1) % options_.cache_rows;
  const Answer from_weights =
      best(weights_, options_.weight_rows, host_.chain_low % options_.weight_rows, query);
  const Answer from_cache = best(cache_, rows, host_.chain_high % rows, query);
  chain(from_weights, from_cache);
  host_.request++;
  host_.pace.end_step(host_.request, options_.requests, options_.request_ns);
  if (options_.print_every != 0 && host_.request % options_.print_every == 0) {
    std::printf("request %llu%s\n", static_cast<unsigned long long>(host_.request),
                time_note(options_.common.print_times).c_str());
    std::fflush(stdout);
  }
}

void Server::print_result() {
  char digest[33];
  std::snprintf(digest, sizeof digest, "%016llx%016llx", static_cast<unsigned long long>(host_.chain_high),
                static_cast<unsigned long long>(host_.chain_low));
  const nlohmann::ordered_json result = {
      {"digest", digest},
      {"requests", host_.request},
      {"moves", host_.moves},
      {"longest_gap_ms", static_cast<double>(host_.pace.longest_gap_ns) / 1e6},
      {"longest_gap_step_ms", static_cast<double>(host_.pace.longest_gap_step_ns) / 1e6}};
  std::printf("%s\n", result.dump().c_str());
}

void Server::run() {
  if (session_.ready()) {
    host_.moves++;
  } else {
    fill();
    host_.pace.forget_gap();
  }
  while (host_.request < options_.requests) {
    host_.pace.begin_step();
    answer_request();
    session_.barrier();
  }
  print_result();
  session_.shutdown();
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  ckpt::examples::Server(ckpt::examples::parse_options(argc, argv)).run();
  return 0;
}
