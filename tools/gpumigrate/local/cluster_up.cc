// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "libckpt/api/node.h"
#include "libckpt/net/control/toml_text.h"
#include "libckpt/record/document.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/local/certificates.h"
#include "tools/gpumigrate/local/cluster.h"
#include "tools/gpumigrate/local/gpu_choice.h"
#include "tools/gpumigrate/local/state.h"
#include "tools/gpumigrate/local/waiting.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kStartPatience{30};
constexpr int kMaxNodes = 26;
constexpr int kDefaultNodes = 2;

std::string node_name(int index) {
  return std::string("node-") + static_cast<char>('a' + index);
}

Result<void> make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Error(ErrorCode::kIo, "Cannot create the folder " + path + ": " + error.message());
  return ok();
}

// Returns the operator's extra settings for each agent or for the coordinator; empty: none.
Result<std::string> extra_settings(const std::string& home, const char* file) {
  const std::string path = home + "/" + file;
  if (::access(path.c_str(), F_OK) != 0) return std::string();
  return read_file(path, 64 << 10);
}

class ClusterStarter {
 public:
  ClusterStarter(Context& context, Wait& wait, std::string programs, GpuChoice gpu, LocalState state)
      : context_(context),
        wait_(wait),
        programs_(std::move(programs)),
        gpu_(std::move(gpu)),
        state_(std::move(state)) {}

  Result<void> start() {
    const bool is_lost = store_is_lost();
    CKPT_TRYV(have_coordinator());
    if (is_lost) {
      CKPT_TRYV(take_in_what_runs());
    }
    for (int i = 0; i < static_cast<int>(state_.nodes.size()); i++) {
      CKPT_TRYV(start_node(i));
    }
    return wait_until_ready();
  }
  [[nodiscard]] int started() const noexcept { return started_; }
  [[nodiscard]] const LocalState& state() const noexcept { return state_; }

 private:
  [[nodiscard]] const std::string& home() const { return context_.home(); }
  [[nodiscard]] bool store_is_lost() const;
  Result<void> take_in_what_runs();
  Result<void> have_coordinator();
  Result<void> start_coordinator();
  Result<void> wait_for_address(const std::string& folder);
  Result<bool> take_addresses();
  Result<void> start_node(int index);
  Result<void> write_agent_config(const std::string& folder, const std::string& name,
                                  const std::vector<std::string>& environment);
  Result<void> wait_until_ready();
  Result<Json> ask(const std::string& path);
  Result<void> check_coordinator();
  Result<void> check_nodes();

  Context& context_;
  Wait& wait_;
  std::string programs_;
  GpuChoice gpu_;
  LocalState state_;
  int started_ = 0;
  std::set<pid_t> own_;  // the processes that this command has started
};

Result<void> write_coordinator_config(const std::string& home, const LocalState& state) {
  CKPT_TRY(extra, extra_settings(home, "coordinator-extra.toml"));
  return write_file_durably(home + "/coordinator/coordinator.toml",
                            "home = " + control::toml_string(home) +
                                "\napi_address = " + control::toml_string(state.api_address) +
                                "\nagent_address = " + control::toml_string(state.agent_address) + "\n" +
                                coordinator_security(home) + extra);
}

// Returns true if there are nodes, but the coordinator is about to start without a store.
bool ClusterStarter::store_is_lost() const {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(home() + "/coordinator/state.db", error);
  return (error || bytes == 0) && std::filesystem::is_directory(home() + "/nodes", error);
}

Result<void> ClusterStarter::take_in_what_runs() {
  constexpr std::int64_t kTakeInMs = 600'000;
  auto opened = context_.coordinator.post("/v1/recovery/open", {{"for_ms", kTakeInMs}});
  if (!opened) return std::move(opened).error();
  context_.note(
      "The coordinator's store was lost: for 10 minutes it accepts the jobs that run on this machine's "
      "nodes");
  return ok();
}

// Starts a coordinator, unless one runs. A running coordinator that exits in the meantime is replaced, unless
// this command has started it.
Result<void> ClusterStarter::have_coordinator() {
  for (;;) {
    if (!is_alive(state_.coordinator)) {
      CKPT_TRYV(start_coordinator());
    }
    // This call also waits for a coordinator of an interrupted `up`, because nodes need its addresses.
    auto listens = wait_for_address(home() + "/coordinator");
    const bool had_ended = !own_.contains(state_.coordinator.pid) && !is_alive(state_.coordinator);
    if (listens || !had_ended) return listens;
  }
}

Result<void> ClusterStarter::start_coordinator() {
  const std::string folder = home() + "/coordinator";
  CKPT_TRYV(make_folder(folder));
  if (state_.api_address.empty()) state_.api_address = state_.agent_address = "127.0.0.1:0";
  CKPT_TRYV(certify_local_coordinator(home()));
  CKPT_TRYV(write_coordinator_config(home(), state_));
  DaemonSpec spec;
  spec.argv = {programs_ + "/gpumigrate-coordinator", "--config", folder + "/coordinator.toml"};
  spec.environment = environment_with({"GPUMIGRATE_HOME=" + home(), cluster_marker(home())});
  spec.output = folder + "/coordinator.log";
  CKPT_TRY(process, start_daemon(spec));
  state_.coordinator = process;
  own_.insert(process.pid);
  started_++;
  return save_local(home(), state_);
}

// Waits until the coordinator has written its addresses. The coordinator replaces api.json in `folder` once
// it listens.
Result<void> ClusterStarter::wait_for_address(const std::string& folder) {
  const UniqueFd changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes || ::inotify_add_watch(changes.get(), folder.c_str(), IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
    return Error::from_errno("Watching " + folder);
  }
  CKPT_TRY(end, watch_end(state_.coordinator));
  wait_.now_for("the coordinator to listen");
  const Clock::time_point deadline = Clock::now() + kStartPatience;
  for (;;) {
    CKPT_TRY(ready, take_addresses());
    if (ready) return ok();
    CKPT_TRYV(check_coordinator());
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      return Error(ErrorCode::kTimedOut,
                   "The coordinator does not listen after 30 s; see " + folder + "/coordinator.log");
    CKPT_TRYV(wait_readable(context_, wait_, {changes.get(), end.get()}, left));
    char events[4096];
    while (::read(changes.get(), events, sizeof events) > 0) {
    }
  }
}

// Returns true if api.json is from the running coordinator. Its addresses are then stored for later starts.
Result<bool> ClusterStarter::take_addresses() {
  auto text = read_file(home() + "/coordinator/api.json", 64 << 10);
  if (!text) return false;
  const Json api = Json::parse(*text, nullptr, false);
  if (static_cast<pid_t>(number_of(api, "pid")) != state_.coordinator.pid) return false;
  const std::string url = text_of(api, "url");
  constexpr std::string_view kScheme = "https://";
  if (!url.starts_with(kScheme))
    return Error(ErrorCode::kProtocol,
                 "The coordinator's api.json has no valid https:// address: \"" + url + "\"");
  const std::string api_address = url.substr(kScheme.size());
  const std::string agent_address = text_of(api, "agent_address");
  if (api_address == state_.api_address && agent_address == state_.agent_address) return true;
  state_.api_address = api_address;
  state_.agent_address = agent_address;
  CKPT_TRYV(write_coordinator_config(home(), state_));
  CKPT_TRYV(save_local(home(), state_));
  return true;
}

Result<void> ClusterStarter::write_agent_config(const std::string& folder, const std::string& name,
                                                const std::vector<std::string>& environment) {
  CKPT_TRY(extra, extra_settings(home(), "agent-extra.toml"));
  // The kernel log has no faults of software GPUs, so each node reads a file instead.
  const std::string kernel_log = folder + "/gpu/kernel.log";
  if (gpu_.software && !UniqueFd(::open(kernel_log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)))
    return Error::from_errno("Creating " + kernel_log);
  const std::string software = "driver_processes = [\"cudasim-device\"]\ndriver_files = [\"/secretmem\", " +
                               control::toml_string("locks:" + folder + "/gpu/") +
                               "]\nkernel_log = " + control::toml_string(kernel_log) + "\n";
  std::string list;
  for (const std::string& entry : environment)
    list += (list.empty() ? "" : ", ") + control::toml_string(entry);
  const std::string text =
      "node = " + control::toml_string(name) + "\nhome = " + control::toml_string(folder) +
      "\ncoordinator = " + control::toml_string(state_.agent_address) +
      "\ntoken_file = " + control::toml_string(home() + "/coordinator/agent-token") +
      "\npeer_listen = \"127.0.0.1:0\"\nmetrics_address = \"127.0.0.1:0\"\nmetrics_token_file = " +
      control::toml_string(home() + "/coordinator/metrics-token") + "\njob_environment = [" + list + "]\n" +
      (gpu_.software ? software : "") + node_security(home(), name) + extra;
  return write_file_durably(folder + "/agent.toml", text);
}

Result<void> ClusterStarter::start_node(int index) {
  LocalNode& node = state_.nodes[static_cast<std::size_t>(index)];
  const std::string name = node.name;
  if (is_alive(node.process)) return ok();
  const std::string folder = home() + "/nodes/" + name;
  CKPT_TRYV(make_folder(folder + "/gpu"));
  std::vector<std::string> environment = gpu_environment(gpu_, folder, state_.gpus, state_.gpu_memory);
  environment.push_back(cluster_marker(home()));
  CKPT_TRYV(certify_local_node(home(), name));
  CKPT_TRYV(write_agent_config(folder, name, environment));
  DaemonSpec spec;
  spec.argv = {programs_ + "/gpumigrate-agent", "--config", folder + "/agent.toml"};
  environment.push_back("GPUMIGRATE_HOME=" + home());
  spec.environment = environment_with(environment);
  spec.output = folder + "/agent.log";
  CKPT_TRY(process, start_daemon(spec));
  node.process = process;
  own_.insert(process.pid);
  started_++;
  return save_local(home(), state_);
}

Result<void> ClusterStarter::check_coordinator() {
  if (is_alive(state_.coordinator)) return ok();
  return Error(ErrorCode::kUnavailable,
               "The coordinator exited during its start; see " + home() + "/coordinator/coordinator.log");
}

// Starts an agent again if it has exited, unless this command has started it.
Result<void> ClusterStarter::check_nodes() {
  for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
    const LocalNode& node = state_.nodes[i];
    if (is_alive(node.process)) continue;
    if (own_.contains(node.process.pid))
      return Error(ErrorCode::kUnavailable, "The agent of " + node.name + " exited during its start; see " +
                                                home() + "/nodes/" + node.name + "/agent.log");
    CKPT_TRYV(start_node(static_cast<int>(i)));
  }
  return ok();
}

// Queries the coordinator. A signal or the limit ends the call.
Result<Json> ClusterStarter::ask(const std::string& path) {
  auto answer = context_.coordinator.get(path);
  if (auto end = wait_.end()) return *std::move(end);
  return answer;
}

// Waits until all nodes are ready. It checks the nodes after every event of the cluster.
Result<void> ClusterStarter::wait_until_ready() {
  const Clock::time_point deadline = Clock::now() + kStartPatience;
  std::uint64_t since = 0;
  wait_.now_for("the nodes to be ready");
  for (;;) {
    CKPT_TRY(answer, ask("/v1/nodes"));
    const auto nodes = record::list_from_answer<api::Node>(answer);
    std::size_t ready = 0;
    std::string missing;
    for (const LocalNode& ours : state_.nodes) {
      const bool is_ready = std::any_of(nodes.begin(), nodes.end(), [&](const api::Node& node) {
        return node.name == ours.name && node.state == "ready";
      });
      ready += is_ready ? 1 : 0;
      if (!is_ready) missing += (missing.empty() ? "" : ", ") + ours.name;
    }
    if (missing.empty()) return ok();
    wait_.now_for(missing + " to be ready");
    CKPT_TRYV(check_coordinator());
    CKPT_TRYV(check_nodes());
    if (Clock::now() >= deadline) {
      return Error(ErrorCode::kTimedOut, "After 30 s only " + std::to_string(ready) + " of " +
                                             std::to_string(state_.nodes.size()) + " nodes are ready; see " +
                                             home() + "/nodes/*/agent.log");
    }
    CKPT_TRY(events, ask("/v1/events?since=" + std::to_string(since) + "&limit=1000&follow_ms=1000"));
    since = static_cast<std::uint64_t>(number_of(events, "next", static_cast<double>(since)));
  }
}

Result<void> check_options(const LocalOptions& options) {
  if (options.nodes && (*options.nodes < 1 || *options.nodes > kMaxNodes)) {
    return Error(ErrorCode::kInvalidArgument,
                 "--nodes: the number must be from 1 to " + std::to_string(kMaxNodes));
  }
  if (options.gpus && (*options.gpus < 1 || *options.gpus > 16)) {
    return Error(ErrorCode::kInvalidArgument, "--gpus: the number must be from 1 to 16");
  }
  auto memory = tools::parse_size(options.gpu_memory.value_or("1GiB"));
  if (!memory) return Error(ErrorCode::kInvalidArgument, "--gpu-memory: " + memory.error().message());
  return ok();
}

// Returns the state to start from. It is the state of the existing cluster, even if all its processes have
// exited without `local down`, or a new state. While a process of the cluster runs, its GPUs and nodes are
// not changed.
Result<LocalState> wanted_state(const std::string& home, const LocalOptions& options, const GpuChoice& gpu) {
  CKPT_TRY(known, load_local(home));
  LocalState state = known.value_or(LocalState{});
  const bool is_new = state.nodes.empty();
  bool running = is_alive(state.coordinator);
  for (const LocalNode& node : state.nodes) running = running || is_alive(node.process);
  const bool same = options.gpus.value_or(state.gpus) == state.gpus &&
                    options.gpu_memory.value_or(state.gpu_memory) == state.gpu_memory;
  if (running && !is_new && !same) {
    return Error(ErrorCode::kRefused, "Cannot change a running cluster: the one at " + home + " has " +
                                          std::to_string(state.gpus) + " GPUs of " + state.gpu_memory +
                                          " on each node; `gpumigrate local down` stops it");
  }
  const auto known_nodes = static_cast<int>(state.nodes.size());
  const int asked = options.nodes.value_or(is_new ? kDefaultNodes : known_nodes);
  state.nodes.resize(static_cast<std::size_t>(running ? std::max(asked, known_nodes) : asked));
  for (int i = known_nodes; i < static_cast<int>(state.nodes.size()); i++)
    state.nodes[static_cast<std::size_t>(i)].name = node_name(i);
  if (!running) state.software = gpu.software;
  if (is_new) {
    state.gpus = 1;
    state.gpu_memory = "8GiB";
  }
  state.gpus = options.gpus.value_or(state.gpus);
  state.gpu_memory = options.gpu_memory.value_or(state.gpu_memory);
  return state;
}

void print_processes(Context& context, const ClusterStarter& starter, const GpuChoice& gpu) {
  const LocalState& state = starter.state();
  if (context.json) {
    Json nodes = Json::array();
    for (const LocalNode& node : state.nodes) nodes.push_back(node.name);
    context.print({{"home", context.home()},
                   {"software_gpu", gpu.software},
                   {"nodes", nodes},
                   {"gpus", state.gpus},
                   {"gpu_memory", state.gpu_memory},
                   {"started", starter.started()}});
    return;
  }
  context.out
      << (starter.started() == 0 ? "already running" : "started") << ": " << state.nodes.size()
      << " nodes with " << state.gpus << (gpu.software ? " software" : "")
      << (state.gpus == 1 ? " GPU" : " GPUs") << (gpu.software ? " of " + state.gpu_memory : "") << " each ("
      << gpu.reason << ")\n"
      << "home: " << context.home() << "\n"
      << "next: gpumigrate gpus; gpumigrate run -- PROGRAM; gpumigrate migrate JOB; gpumigrate local down\n"
      << std::flush;
}

Result<int> up(Context& context, const LocalOptions& options, Wait& wait) {
  CKPT_TRYV(check_options(options));
  CKPT_TRYV(make_folder(context.home()));
  std::filesystem::permissions(context.home(), std::filesystem::perms::owner_all);
  CKPT_TRY(lock, acquire_lock(context, wait));
  (void)lock;  // the lock is held until the function returns
  CKPT_TRY(programs, program_folder());
  CKPT_TRY(gpu, choose_gpu(programs));
  CKPT_TRY(state, wanted_state(context.home(), options, gpu));
  ClusterStarter starter(context, wait, programs, gpu, std::move(state));
  CKPT_TRYV(starter.start());
  wait.clear();
  print_processes(context, starter, gpu);
  return static_cast<int>(kDone);
}

}  // namespace

int local_up(Context& context, const LocalOptions& options) {
  auto wait = Wait::begin(
      context, {"the cluster to start", "the cluster continues to start; `gpumigrate local up` waits again"},
      options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto result = up(context, options, **wait);
  if (result) return *result;
  const Error& error = result.error();
  if (error.code() == ErrorCode::kAborted) return report_wait(context, **wait, error);
  (*wait)->clear();
  const bool is_usage = error.code() == ErrorCode::kInvalidArgument;
  report(context, error);
  return is_usage ? kUsage : kRefused;
}

}  // namespace ckpt::cli
