// SPDX-License-Identifier: Apache-2.0
#include "agent/health/gpu_probes.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

using health::GpuProbe;
using Json = nlohmann::json;

constexpr std::size_t kMaxOutput = 64 << 10;
constexpr std::size_t kMaxDetail = 200;
constexpr char kLine[] = "{\"gpu_probe\":";

std::string printable(std::string text) {
  if (text.size() > kMaxDetail) text.resize(kMaxDetail);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

GpuProbeAnswer parse_gpu_probe(std::string_view output) {
  const std::size_t at = output.rfind(kLine);
  if (at == std::string_view::npos) return {GpuProbe::kNotTried, "the probe printed no result"};
  const std::string_view line = output.substr(at, output.find('\n', at) - at);
  const Json json = Json::parse(line, nullptr, false);
  const auto text = [&json](const char* key) {
    if (!json.is_object() || !json["gpu_probe"].is_object()) return std::string();
    const auto& said = json["gpu_probe"];
    return said.contains(key) && said[key].is_string() ? said[key].get<std::string>() : std::string();
  };
  const std::string result = text("result");
  const std::string detail = printable(text("detail"));
  if (result == "passed") return {GpuProbe::kPassed, detail};
  if (result == "failed") return {GpuProbe::kFailed, detail};
  return {GpuProbe::kNotTried, detail};
}

struct GpuProbes::Probe {
  Probe(const asio::any_io_executor& executor, std::string its_uuid)
      : uuid(std::move(its_uuid)), ended(executor) {}
  std::string uuid;
  std::string output;
  std::shared_ptr<ChildProcess> process;
  std::optional<int> status;
  AsyncEvent ended;
  bool answered = false;
};

std::shared_ptr<GpuProbes> GpuProbes::create(const asio::any_io_executor& executor, GpuProbeSettings settings,
                                             Answers answers) {
  return std::shared_ptr<GpuProbes>(new GpuProbes(executor, std::move(settings), std::move(answers)));
}

void GpuProbes::ask(const std::string& uuid) {
  if (!answers_) return;
  std::shared_ptr<Probe>& last = probes_[uuid];
  if (last && !last->answered) return;
  const bool hangs = last && last->process && last->process->running();
  if (!hangs) {
    last = std::make_shared<Probe>(executor_, uuid);
    last->output = settings_.folder + "/gpu-probe-" + uuid + ".out";
  }
  last->answered = false;
  control::spawn(executor_, "gpu probe", run(last));
}

Task<> GpuProbes::run(std::shared_ptr<Probe> probe) {
  const auto self = shared_from_this();
  const GpuProbeAnswer answer = co_await outcome(probe);
  probe->answered = true;
  spdlog::info("gpu probe: uuid {} result {} detail \"{}\"", probe->uuid, health::to_string(answer.result),
               answer.detail);
  if (auto answers = answers_) answers(probe->uuid, answer);
}

Task<GpuProbeAnswer> GpuProbes::outcome(std::shared_ptr<Probe> probe) {
  if (probe->process) co_return GpuProbeAnswer(GpuProbe::kHung, "an earlier probe still hangs");
  if (auto launched = launch(probe); !launched)
    co_return GpuProbeAnswer(GpuProbe::kNotTried, printable(launched.error().to_string()));
  co_await probe->ended.wait(std::chrono::steady_clock::now() + settings_.deadline);
  if (!probe->status) {
    probe->process->signal(SIGKILL);
    ::unlink(probe->output.c_str());
    co_return GpuProbeAnswer(GpuProbe::kHung, "the probe did not finish within " +
                                                  std::to_string(settings_.deadline.count()) + " ms");
  }
  probe->process.reset();
  const auto said = read_file(probe->output, kMaxOutput);
  ::unlink(probe->output.c_str());
  GpuProbeAnswer answer = parse_gpu_probe(said ? *said : std::string());
  if (answer.result == GpuProbe::kNotTried && answer.detail.empty())
    answer.detail = "the probe terminated with " + describe_wait_status(*probe->status);
  co_return answer;
}

Result<void> GpuProbes::launch(const std::shared_ptr<Probe>& probe) {
  ::unlink(probe->output.c_str());
  ProcessSpec spec;
  spec.argv = {settings_.program, "--probe-gpu"};
  spec.environment = {"CUDA_VISIBLE_DEVICES=" + probe->uuid};
  spec.output_path = probe->output;
  spec.own_session = true;
  // The handler refers to the probe only weakly, because the probe owns its process, and the process may hang
  // forever.
  CKPT_TRY(process, ChildProcess::start(executor_, spec, [of = std::weak_ptr<Probe>(probe)](int status) {
             const auto ended = of.lock();
             if (!ended) return;
             ended->status = status;
             ended->ended.notify();
           }));
  probe->process = process;
  return ok();
}

void GpuProbes::stop() {
  answers_ = nullptr;
  for (auto& [uuid, probe] : probes_) {
    if (probe->process) probe->process->signal(SIGKILL);
  }
}

}  // namespace ckpt::agent
