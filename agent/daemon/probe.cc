// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/probe.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <filesystem>
#include <sstream>

#include "agent/gpus/remap.h"
#include "agent/host_process/criu.h"
#include "agent/host_process/early_pages/memory_watch.h"
#include "agent/host_process/memory_folder.h"
#include "agent/io/process.h"
#include "agent/pauses/rehearsal.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kMaxOutput = std::size_t{1} << 20;

// A folder of this process for the programs' output. The folder is removed with the object.
class WorkFolder {
 public:
  static Result<WorkFolder> create() {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "gpumigrate-probe-XXXXXX").string();
    if (error || ::mkdtemp(path.data()) == nullptr)
      return Error::from_errno("Cannot create a folder for temporary files (TMPDIR)");
    return WorkFolder(std::move(path));
  }
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Returns the first line of a small kernel file, or nullopt if there is no such line.
std::optional<std::string> first_line(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> text{};
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : -1;
  if (got < 0) return std::nullopt;
  const std::string all(text.data(), static_cast<std::size_t>(got));
  return all.substr(0, all.find('\n'));
}

Json node_facts() {
  utsname names{};
  ::uname(&names);
  return {{"name", names.nodename},
          {"kernel", std::string(names.sysname) + " " + names.release},
          {"root", ::geteuid() == 0}};
}

// Creates a PID namespace in a child process. Returns 0 or the errno.
int try_pid_namespace() {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(::unshare(CLONE_NEWPID) == 0 ? 0 : errno);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

void add_memory_folder(Json& facts) {
  const Result<std::string> place = host::find_memory_place();
  struct statfs room {};
  if (!place || ::statfs(place->c_str(), &room) != 0) {
    facts["memory_folder"] = nullptr;
    return;
  }
  facts["memory_folder"] = *place;
  facts["memory_folder_bytes"] = std::uint64_t{room.f_blocks} * static_cast<std::uint64_t>(room.f_bsize);
  facts["memory_folder_free_bytes"] = std::uint64_t{room.f_bavail} * static_cast<std::uint64_t>(room.f_bsize);
}

// Adds the facts about kernel TLS: whether its module is loaded, and whether the module can be loaded. A
// query through a socket is avoided, because it would load the module.
void add_tls(Json& facts) {
  const auto loaded = first_line("/proc/sys/net/ipv4/tcp_available_ulp");
  std::istringstream words(loaded.value_or(""));
  bool found = false;
  for (std::string word; words >> word;) found = found || word == "tls";
  facts["tls"] = loaded ? Json(found) : Json(nullptr);
  utsname names{};
  ::uname(&names);
  const std::string folder = std::string("/lib/modules/") + names.release + "/kernel/net/tls";
  std::error_code ignored;
  facts["tls_module"] = fs::is_directory(folder, ignored);
}

Json rdma_devices() {
  Json names = Json::array();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Json to_json(const host::CriuFacts& facts) {
  return {{"program", facts.program},
          {"version", facts.version},
          {"works", facts.works},
          {"restores_lazily", facts.restores_lazily},
          {"problem", facts.problem}};
}

ProcessSpec mover_spec(const std::string& program, const std::string& output) {
  ProcessSpec spec;
  spec.argv = {program, "--probe"};
  spec.output_path = output;
  spec.own_session = true;
  return spec;
}

struct ProbeEnd {
  explicit ProbeEnd(const asio::any_io_executor& executor) : heard(executor) {}
  AsyncEvent heard;
  std::optional<int> status;
};

// Runs the mover. Returns a text about a failure, or an empty string. A mover that hangs in the driver is
// killed, and the function does not wait for its exit.
Task<std::string> run_mover(ProbeSettings settings, std::string output) {
  const auto executor = co_await asio::this_coro::executor;
  auto ending = std::make_shared<ProbeEnd>(executor);
  const std::string command = settings.mover_program + " --probe";
  const auto process =
      ChildProcess::start(executor, mover_spec(settings.mover_program, output), [ending](int status) {
        ending->status = status;
        ending->heard.notify();
      });
  if (!process.has_value()) co_return process.error().to_string();
  co_await ending->heard.wait(std::chrono::steady_clock::now() + settings.mover_timeout);
  if (!ending->status) {
    (*process)->signal(SIGKILL);
    co_return command + " did not finish within " + std::to_string(settings.mover_timeout.count()) + " ms";
  }
  if (*ending->status != 0) co_return command + " ended with " + describe_wait_status(*ending->status);
  co_return std::string();
}

// Returns the facts in the mover's output, even if the mover failed after it had printed them.
Json mover_facts(const std::string& output, const std::string& problem) {
  const Result<std::string> said = read_file(output, kMaxOutput);
  Json facts = merge_mover_output(said.has_value() ? *said : "");
  for (const char* part : {"driver", "ucx"}) {
    if (!facts.contains(part))
      facts[part] = {{"problem", problem.empty() ? "The mover did not report this fact" : problem}};
  }
  return facts;
}

// Probes the memory methods of the driver (remap) again, and stores the result for the agent.
Task<Json> remap_facts(const ProbeSettings& settings, std::string work, Json driver) {
  RemapProbe probe;
  probe.program = settings.context_program;
  probe.environment = settings.environment;
  probe.output = work + "/remap.out";
  auto found = co_await probe_remap(std::move(probe));
  if (!found) co_return Json{{"problem", found.error().to_string()}};
  RemapFacts facts = *std::move(found);
  if (const auto version = driver.find("version"); version != driver.end() && version->is_number_integer())
    facts.driver = driver_name(version->get<int>());
  const bool named =
      driver.contains("devices") && !driver["devices"].empty() && driver["devices"][0].contains("name");
  if (named) facts.gpu = driver["devices"][0]["name"].get<std::string>();
  if (!settings.home.empty()) {
    if (auto saved = save_remap_facts(settings.home, facts); !saved)
      facts.problem += (facts.problem.empty() ? "" : "; ") + saved.error().to_string();
  }
  co_return to_json(facts);
}

// Saves and restores a small process. `criu check` only queries the kernel. The trial shows whether this
// process may use CRIU with its rights and with the filters of its environment.
Task<void> try_criu(const ProbeSettings& settings, std::string work, Json& criu) {
  RehearsalOrder order;
  order.program = settings.agent_program;
  order.home = std::move(work);
  order.criu = settings.criu;
  const auto tried = co_await ask_rehearsal(std::move(order));
  criu["moves"] = tried.has_value();
  if (!tried) criu["problem"] = tried.error().to_string();
}

Task<void> ask_programs(ProbeSettings settings, std::string work, Json* facts, asio::io_context* loop) {
  const std::string output = work + "/mover.out";
  const std::string problem = co_await run_mover(settings, output);
  facts->update(mover_facts(output, problem));
  (*facts)["remap"] = co_await remap_facts(settings, work, (*facts)["driver"]);
  const host::CriuFacts criu = co_await host::Criu::probe(settings.criu, work);
  (*facts)["criu"] = to_json(criu);
  if (criu.works) co_await try_criu(settings, work, (*facts)["criu"]);
  loop->stop();  // stops the loop even if a mover cannot be killed and is still watched
}

}  // namespace

Json merge_mover_output(const std::string& output) {
  Json merged = Json::object();
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{")) continue;
    const Json value = Json::parse(line, nullptr, false);
    if (value.is_object()) merged.update(value);
  }
  return merged;
}

Json kernel_facts() {
  Json facts = Json::object();
  facts["write_tracking"] = host::kernel_watches_memory();
  const int refused = try_pid_namespace();
  facts["pid_namespaces"] = refused == 0;
  if (refused != 0) facts["pid_namespaces_problem"] = std::strerror(refused);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts["descriptors"] = std::uint64_t{files.rlim_max};
  const UniqueFd memory(::memfd_create("gpumigrate-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  facts["memory_files"] = static_cast<bool>(memory);
  add_memory_folder(facts);
  add_tls(facts);
  return facts;
}

Result<Json> probe_node(ProbeSettings settings) {
  if (settings.mover_program.empty()) {
    CKPT_TRY(folder, program_folder());
    settings.mover_program = folder + "/gpumigrate-mover";
  }
  if (settings.context_program.empty()) {
    CKPT_TRY(folder, program_folder());
    settings.context_program = folder + "/gpumigrate-context";
  }
  if (settings.agent_program.empty()) {
    CKPT_TRY(folder, program_folder());
    settings.agent_program = folder + "/gpumigrate-agent";
  }
  CKPT_TRY(work, WorkFolder::create());
  Json facts = {{"node", node_facts()}, {"kernel", kernel_facts()}, {"rdma", rdma_devices()}};
  asio::io_context loop;
  std::optional<Error> failure;
  control::spawn(loop.get_executor(), "probe", ask_programs(std::move(settings), work.path(), &facts, &loop),
                 [&](Error error) {
                   failure = std::move(error);
                   loop.stop();
                 });
  loop.run();
  if (failure) return *failure;
  const auto module = first_line("/sys/module/nvidia/version");
  facts["driver"]["module"] = module ? Json(*module) : Json(nullptr);
  return facts;
}

}  // namespace ckpt::agent
