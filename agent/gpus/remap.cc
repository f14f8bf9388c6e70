// SPDX-License-Identifier: Apache-2.0
#include "agent/gpus/remap.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "agent/io/process.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 64 << 10;
constexpr std::uint64_t kMaxContextNs = 600'000'000'000;

std::string path_in(const std::string& home) {
  return home + "/remap.json";
}

Result<std::optional<bool>> flag_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::optional<bool>();
  if (!found->is_boolean())
    return Error(ErrorCode::kCorrupt,
                 std::string("\"") + key + "\" of the remap facts is not true, false or null");
  return std::optional<bool>(found->get<bool>());
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Nanos span_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  const bool sane = found != json.end() && found->is_number_unsigned() && *found < kMaxContextNs;
  return sane ? found->get<Nanos>() : 0;
}

Json to_json(const std::optional<bool>& flag) {
  return flag ? Json(*flag) : Json(nullptr);
}

struct Ending {
  explicit Ending(const asio::any_io_executor& executor) : heard(executor) {}
  AsyncEvent heard;
  std::optional<int> status;
};

Result<RemapFacts> read_answer(const std::string& path, const std::string& ended) {
  const auto said = read_file(path, kMaxBytes);
  ::unlink(path.c_str());
  const std::string text = said ? *said : std::string();
  const std::size_t at = text.rfind("{\"remap\":");
  if (at != std::string::npos) {
    const Json line = Json::parse(text.substr(at, text.find('\n', at) - at), nullptr, false);
    if (line.is_object() && line.contains("remap")) return parse_remap_facts(line["remap"]);
  }
  return Error(ErrorCode::kUnavailable, "The probe that tests how memory is mapped after a restore " + ended);
}

}  // namespace

std::string driver_name(int version) {
  std::string name = std::to_string(version);
  if (auto module = read_file("/sys/module/nvidia/version", 256)) {
    const std::string text = *std::move(module);
    name += "/" + text.substr(0, text.find('\n'));
  }
  return name;
}

Result<RemapFacts> parse_remap_facts(const Json& json) {
  if (!json.is_object()) return Error(ErrorCode::kCorrupt, "The remap facts are not a JSON object");
  RemapFacts facts;
  CKPT_TRY(import, flag_of(json, "import"));
  CKPT_TRY(own, flag_of(json, "own"));
  CKPT_TRY(import_moved, flag_of(json, "import_moved"));
  CKPT_TRY(own_moved, flag_of(json, "own_moved"));
  facts.import = import;
  facts.own = own;
  facts.import_moved = import_moved;
  facts.own_moved = own_moved;
  facts.save_ns = span_of(json, "save_ns");
  facts.restore_ns = span_of(json, "restore_ns");
  facts.problem = text_of(json, "problem");
  facts.driver = text_of(json, "driver");
  facts.gpu = text_of(json, "gpu");
  return facts;
}

Json to_json(const RemapFacts& facts) {
  return {{"driver", facts.driver},
          {"gpu", facts.gpu},
          {"import", to_json(facts.import)},
          {"own", to_json(facts.own)},
          {"import_moved", to_json(facts.import_moved)},
          {"own_moved", to_json(facts.own_moved)},
          {"save_ns", facts.save_ns},
          {"restore_ns", facts.restore_ns},
          {"problem", facts.problem}};
}

Result<RemapFacts> load_remap_facts(const std::string& home) {
  CKPT_TRY(text, read_file(path_in(home), kMaxBytes));
  return parse_remap_facts(Json::parse(text, nullptr, false));
}

Result<void> save_remap_facts(const std::string& home, const RemapFacts& facts) {
  return write_file_durably(path_in(home),
                            to_json(facts).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Task<Result<RemapFacts>> probe_remap(RemapProbe probe) {
  const auto executor = co_await asio::this_coro::executor;
  ::unlink(probe.output.c_str());
  ProcessSpec spec;
  spec.argv = {probe.program, "--probe-remap"};
  spec.environment = probe.environment;
  spec.output_path = probe.output;
  spec.own_session = true;
  auto ending = std::make_shared<Ending>(executor);
  CKPT_CO_TRY(process, ChildProcess::start(executor, spec, [ending](int status) {
                ending->status = status;
                ending->heard.notify();
              }));
  co_await ending->heard.wait(std::chrono::steady_clock::now() + probe.timeout);
  if (!ending->status) {
    process->signal(SIGKILL);
    co_return read_answer(probe.output,
                          "did not finish within " + std::to_string(probe.timeout.count()) + " ms");
  }
  co_return read_answer(probe.output, "ended with " + describe_wait_status(*ending->status));
}

bool RemapChoice::holds_for(const ContextFacts& driver) const {
  return facts_ && facts_->driver == driver_name(driver.driver_version) && facts_->gpu == driver.gpu;
}

Task<Result<void>> RemapChoice::prepare() {
  if (config_.remap != "auto") co_return ok();
  CKPT_CO_TRY(driver, co_await contexts_.ready());
  const AsyncMutex::Held turn = co_await asking_.acquire();
  // The file is read each time, because `gpumigrate doctor` may have written it again.
  facts_.reset();
  if (auto stored = load_remap_facts(config_.home)) facts_ = *std::move(stored);
  if (!holds_for(driver) || !facts_->has_a_way()) {
    CKPT_CO_TRYV(co_await find_out(driver));
  }
  if (!facts_ || facts_->imports() || facts_->makes()) co_return ok();
  co_return Error(ErrorCode::kRefused,
                  "This node's driver does not let a restored process share memory with another process: " +
                      facts_->problem);
}

// Probes the driver. A probe without an answer is not a reason to refuse a move.
Task<Result<void>> RemapChoice::find_out(ContextFacts driver) {
  RemapProbe probe;
  probe.program = program_;
  probe.output = config_.home + "/remap-probe.out";
  auto asked = co_await probe_remap(std::move(probe));
  facts_.reset();
  if (!asked) {
    spdlog::warn("remap not probed: reason {}", asked.error().to_string());
    co_return ok();
  }
  facts_ = *std::move(asked);
  facts_->driver = driver_name(driver.driver_version);
  facts_->gpu = driver.gpu;
  spdlog::info("remap probed: {}", to_json(*facts_).dump());
  if (!facts_->has_a_way())
    co_return ok();  // without a working method no result is stored, so the next
                     // migration probes again
  if (auto saved = save_remap_facts(config_.home, *facts_); !saved)
    spdlog::warn("remap facts not saved: reason {}", saved.error().to_string());
  co_return ok();
}

bool RemapChoice::imports() {
  if (config_.remap != "auto") return config_.remap == "import";
  if (!facts_) {
    if (auto stored = load_remap_facts(config_.home)) facts_ = *std::move(stored);
  }
  return !facts_ || facts_->imports();
}

}  // namespace ckpt::agent
