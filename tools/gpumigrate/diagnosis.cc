// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/doctor.h"

namespace ckpt::cli {
namespace {

constexpr double kEnoughDescriptors = 65536;
constexpr double kEnoughMemoryFolder = double{1 << 30};

// The names of findings. Abilities refer to their findings by these names.
constexpr const char* kDriver = "CUDA driver";
constexpr const char* kDevices = "CUDA devices";
constexpr const char* kSecondDevice = "second GPU";
constexpr const char* kVirtualMemory = "virtual memory management";
constexpr const char* kDescriptors = "memory as descriptors";
constexpr const char* kDirectRdma = "GPUDirect RDMA";
constexpr const char* kCheckpoint = "driver checkpoint";
constexpr const char* kChangeGpu = "restore on another GPU";
constexpr const char* kImport = "import after a restore";
constexpr const char* kRoot = "root";
constexpr const char* kPidNamespaces = "PID namespaces";
constexpr const char* kCriu = "CRIU";
constexpr const char* kWriteTracking = "write tracking";
constexpr const char* kLazyPages = "lazy pages";
constexpr const char* kOpenFiles = "open files limit";
constexpr const char* kMemoryFiles = "memory files";
constexpr const char* kMemoryFolder = "memory folder";
constexpr const char* kUcx = "UCX";
constexpr const char* kUcxCuda = "UCX with CUDA";
constexpr const char* kRdma = "RDMA";
constexpr const char* kTls = "kernel TLS";

constexpr const char* kEvery = "every move";
constexpr const char* kUnmodified = "unmodified programs";
constexpr const char* kSeeDriver = "See CUDA driver";
constexpr const char* kAcross = "unmodified programs between nodes";

Answer answer_of(std::optional<bool> fact) {
  if (!fact) return Answer::kUnknown;
  return *fact ? Answer::kYes : Answer::kNo;
}

std::optional<bool> fact(const Json& object, const char* field) {
  const Json& value = member(object, field);
  return value.is_boolean() ? std::optional<bool>(value.get<bool>()) : std::nullopt;
}

// Returns the text of a field, or an empty text if there is none.
std::string text(const Json& object, const char* field) {
  const Json& value = member(object, field);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<double> amount(const Json& object, const char* field) {
  const Json& value = member(object, field);
  return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
}

std::string version_text(const Json& driver) {
  const auto version = amount(driver, "version");
  if (!version || *version <= 0) return {};
  const int number = static_cast<int>(*version);
  return "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) {
    if (!part.empty()) all += (all.empty() ? "" : ", ") + part;
  }
  return all;
}

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> texts;
  if (!list.is_array()) return texts;
  for (const Json& item : list) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

// Returns a text like "2 x NVIDIA H200 (139.81 GiB), ...".
std::string devices_text(const Json& devices) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const Json& device : devices) {
    const auto bytes = amount(device, "bytes");
    std::string kind = text(device, "name");
    if (kind.empty()) kind = has_value(device, "problem") ? text(device, "problem") : "unnamed device";
    if (bytes) kind += " (" + tools::format_bytes(*bytes) + ")";
    const auto known =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
    if (known == kinds.end()) {
      kinds.emplace_back(kind, 1);
    } else {
      known->second++;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(std::to_string(count) + " x " + kind);
  return joined(parts);
}

class Findings {
 public:
  explicit Findings(const Json& facts)
      : driver_(member(facts, "driver")),
        devices_(member(driver_, "devices")),
        kernel_(member(facts, "kernel")),
        criu_(member(facts, "criu")),
        ucx_(member(facts, "ucx")),
        node_(member(facts, "node")),
        rdma_(member(facts, "rdma")),
        remap_(member(facts, "remap")) {}

  std::vector<Finding> list() const {
    return {driver(),      devices(),        second_device(), virtual_memory(),
            descriptors(), checkpoint(),     change_gpu(),    import(),
            root(),        pid_namespaces(), criu(),          write_tracking(),
            lazy_pages(),  open_files(),     memory_files(),  memory_folder(),
            ucx(),         ucx_cuda(),       rdma(),          direct_rdma(),
            tls()};
  }

 private:
  [[nodiscard]] std::size_t device_count() const { return devices_.is_array() ? devices_.size() : 0; }
  // Checks that all devices support a feature, and names the devices that do not.
  [[nodiscard]] Finding of_devices(const char* what, const char* field, const char* needed_for,
                                   const char* to_do) const;
  [[nodiscard]] std::string no_driver_advice() const;

  [[nodiscard]] Finding driver() const;
  [[nodiscard]] Finding devices() const;
  [[nodiscard]] Finding second_device() const;
  [[nodiscard]] Finding virtual_memory() const;
  [[nodiscard]] Finding descriptors() const;
  [[nodiscard]] Finding direct_rdma() const;
  [[nodiscard]] Finding checkpoint() const;
  [[nodiscard]] Finding change_gpu() const;
  [[nodiscard]] Finding import() const;
  [[nodiscard]] Finding root() const;
  [[nodiscard]] Finding pid_namespaces() const;
  [[nodiscard]] Finding criu() const;
  [[nodiscard]] Finding write_tracking() const;
  [[nodiscard]] Finding lazy_pages() const;
  [[nodiscard]] Finding open_files() const;
  [[nodiscard]] Finding memory_files() const;
  [[nodiscard]] Finding memory_folder() const;
  [[nodiscard]] Finding ucx() const;
  [[nodiscard]] Finding ucx_cuda() const;
  [[nodiscard]] Finding rdma() const;
  [[nodiscard]] Finding tls() const;

  const Json& driver_;
  const Json& devices_;
  const Json& kernel_;
  const Json& criu_;
  const Json& ucx_;
  const Json& node_;
  const Json& rdma_;
  const Json& remap_;
};

std::string Findings::no_driver_advice() const {
  const std::string problem = text(driver_, "problem");
  const std::string software =
      ". To check the software GPU instead: GPUMIGRATE_SOFTWARE_GPU=1 gpumigrate doctor";
  if (fact(driver_, "loaded") != true) return "Install NVIDIA's driver, version 580 or newer" + software;
  if (problem.find("CUDA_ERROR_NO_DEVICE") != std::string::npos)
    return "No GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices" + software;
  return "Look for the cause with nvidia-smi and in the kernel log (dmesg)" + software;
}

Finding Findings::driver() const {
  const std::string problem = text(driver_, "problem");
  Finding finding{kDriver, Answer::kUnknown, {}, kEvery, no_driver_advice()};
  if (const auto loaded = fact(driver_, "loaded")) finding.answer = answer_of(*loaded && problem.empty());
  const std::string module = text(driver_, "module");
  finding.value =
      joined({problem, version_text(driver_), module.empty() ? "" : "NVIDIA's kernel module " + module});
  return finding;
}

Finding Findings::devices() const {
  Finding finding{kDevices, Answer::kUnknown, {}, kEvery, kSeeDriver};
  if (fact(driver_, "loaded") == false) finding.answer = Answer::kNo;
  if (devices_.is_array()) finding.answer = answer_of(!devices_.empty());
  finding.value = device_count() == 0 ? "none" : devices_text(devices_);
  if (finding.answer == Answer::kUnknown) finding.value.clear();
  return finding;
}

Finding Findings::second_device() const {
  Finding finding{kSecondDevice,
                  devices().answer,
                  {},
                  "moves within this node",
                  "No action needed if jobs only move to other nodes"};
  if (finding.answer == Answer::kYes) finding.answer = answer_of(device_count() > 1);
  return finding;
}

Finding Findings::of_devices(const char* what, const char* field, const char* needed_for,
                             const char* to_do) const {
  Finding finding{what, Answer::kUnknown, {}, needed_for, to_do};
  if (device_count() == 0) {
    finding.value = "no device found";
    finding.to_do = kSeeDriver;
    return finding;
  }
  finding.answer = Answer::kYes;
  std::vector<std::string> without;
  for (std::size_t i = 0; i < devices_.size(); i++) {
    const auto can = fact(devices_[i], field);
    if (can == true) continue;
    without.push_back(std::to_string(i));
    if (finding.answer != Answer::kNo) finding.answer = answer_of(can);
  }
  if (!without.empty()) finding.value = "not GPU " + joined(without);
  return finding;
}

Finding Findings::virtual_memory() const {
  return of_devices(kVirtualMemory, "virtual_memory", kEvery,
                    "Use another GPU or GPU mode: this one lacks virtual memory management");
}

Finding Findings::descriptors() const {
  return of_devices(kDescriptors, "descriptors", kEvery,
                    "Use another GPU or GPU mode: this one cannot export memory as POSIX file descriptors");
}

Finding Findings::direct_rdma() const {
  return of_devices(kDirectRdma, "direct_rdma", "RDMA without a copy in host memory",
                    "Load nvidia-peermem, or use a GPU that supports direct RDMA. Without direct RDMA, data "
                    "is copied through host memory");
}

Finding Findings::checkpoint() const {
  Finding finding{kCheckpoint,
                  answer_of(fact(driver_, "checkpoint")),
                  {},
                  kUnmodified,
                  "Install driver 570 or newer (it has the cuCheckpointProcess functions)"};
  if (finding.answer == Answer::kUnknown) finding.to_do = kSeeDriver;
  return finding;
}

Finding Findings::change_gpu() const {
  Finding finding{kChangeGpu,
                  answer_of(fact(driver_, "change_gpu")),
                  {},
                  kUnmodified,
                  "Install driver 580 or newer (it has gpuPairs of cuCheckpointProcessRestore)"};
  if (finding.answer == Answer::kUnknown) finding.to_do = kSeeDriver;
  return finding;
}

// Checks whether a restored process can get its memory by import, or otherwise by its own allocation. The
// result on a second GPU counts only if that GPU was tried.
Finding Findings::import() const {
  const auto works = [this](const char* here, const char* moved) {
    const auto first = fact(remap_, here);
    const auto second = fact(remap_, moved);
    return first == true && second.has_value() ? second : first;
  };
  Finding finding{kImport, answer_of(works("import", "import_moved")), text(remap_, "problem"),
                  "moves of unmodified programs without a final copy on the GPU",
                  "No action needed: the process allocates its own memory, which is filled at the switch"};
  if (finding.answer == Answer::kYes) finding.value.clear();
  if (finding.answer == Answer::kUnknown) finding.to_do = kSeeDriver;
  if (finding.answer == Answer::kNo && works("own", "own_moved") != true)
    finding.to_do = "Install another driver: with this one unmodified programs cannot be moved";
  return finding;
}

Finding Findings::root() const {
  return {kRoot, answer_of(fact(node_, "root")), {}, kAcross, "Run the agent and doctor as root"};
}

Finding Findings::pid_namespaces() const {
  return {kPidNamespaces, answer_of(fact(kernel_, "pid_namespaces")), text(kernel_, "pid_namespaces_problem"),
          kAcross,
          "Run the agent and doctor as root; in a container, with the SYS_ADMIN capability (--privileged)"};
}

Finding Findings::criu() const {
  const std::string version = text(criu_, "version");
  const bool fails = fact(criu_, "moves") == false;
  Finding finding{kCriu,
                  fails ? Answer::kNo : answer_of(fact(criu_, "works")),
                  {},
                  kAcross,
                  fails ? "Run the agent and doctor as root with all capabilities and no seccomp filter (in "
                          "a container: --privileged)"
                        : "Run `tools/criu install` as root"};
  finding.value =
      joined({version.empty() ? "" : version + " at " + text(criu_, "program"), text(criu_, "problem")});
  return finding;
}

Finding Findings::write_tracking() const {
  return {
      kWriteTracking,
      answer_of(fact(kernel_, "write_tracking")),
      {},
      "copying host memory before the pause, not in it",
      "Use Linux 6.7 or newer with CONFIG_USERFAULTFD. Without it all host memory is copied in the pause"};
}

Finding Findings::lazy_pages() const {
  return {kLazyPages,
          fact(criu_, "works") == true ? answer_of(fact(criu_, "restores_lazily")) : Answer::kUnknown,
          {},
          "restoring host memory while the program runs, not in the pause",
          "Use a kernel that `criu check --feature uffd-noncoop` accepts (CONFIG_USERFAULTFD). If CRIU is "
          "missing, see CRIU"};
}

Finding Findings::open_files() const {
  Finding finding{kOpenFiles,
                  Answer::kUnknown,
                  {},
                  "jobs with many allocations (one descriptor each)",
                  "Raise the hard limit to 65536 or more (LimitNOFILE=, ulimit -Hn)"};
  const auto limit = amount(kernel_, "descriptors");
  if (!limit) return finding;
  finding.answer = answer_of(*limit >= kEnoughDescriptors);
  finding.value = *limit >= 1e15 ? "no limit" : std::to_string(static_cast<std::uint64_t>(*limit));
  return finding;
}

Finding Findings::memory_files() const {
  return {kMemoryFiles,
          answer_of(fact(kernel_, "memory_files")),
          {},
          kEvery,
          "Use a kernel and a seccomp profile that allow memfd_create"};
}

Finding Findings::memory_folder() const {
  Finding finding{
      kMemoryFolder,
      Answer::kUnknown,
      {},
      kAcross,
      "Mount a tmpfs at /dev/shm that is larger than the programs' host memory (docker: --shm-size)"};
  const std::string place = text(kernel_, "memory_folder");
  const auto free_bytes = amount(kernel_, "memory_folder_free_bytes");
  if (kernel_.is_object() && kernel_.contains("memory_folder") && place.empty()) finding.answer = Answer::kNo;
  if (place.empty() || !free_bytes) return finding;
  finding.answer = answer_of(*free_bytes >= kEnoughMemoryFolder);
  finding.value = place + ": " + tools::format_bytes(*free_bytes) + " free of " +
                  tools::format_bytes(number_of(kernel_, "memory_folder_bytes"));
  return finding;
}

Finding Findings::ucx() const {
  Finding finding{kUcx, Answer::kUnknown, text(ucx_, "version"), kEvery, "Install libucx0"};
  const Json& transports = member(ucx_, "transports");
  if (transports.is_array()) {
    const auto names = texts_of(transports);
    finding.answer = answer_of(std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.starts_with("tcp/") || name.starts_with("rc_");
    }));
    finding.value += ": " + joined(names);
    finding.to_do = "Give UCX a network device that it can use (UCX_NET_DEVICES, UCX_TLS)";
  }
  finding.value = joined({finding.value, text(ucx_, "problem")});
  return finding;
}

Finding Findings::ucx_cuda() const {
  Finding finding{
      kUcxCuda,
      Answer::kUnknown,
      {},
      "RDMA without a copy in host memory",
      "Install a UCX that is built --with-cuda. Without it data is copied through pinned host memory"};
  const Json& components = member(ucx_, "components");
  if (!components.is_array()) return finding;
  const auto names = texts_of(components);
  finding.answer = answer_of(std::any_of(names.begin(), names.end(),
                                         [](const std::string& name) { return name.starts_with("cuda"); }));
  finding.value = "components " + joined(names);
  return finding;
}

Finding Findings::rdma() const {
  Finding finding{kRdma,
                  Answer::kUnknown,
                  {},
                  "links faster than TCP",
                  "Install an RDMA device and its driver (`rdma link` shows it). Without one UCX uses TCP"};
  if (!rdma_.is_array()) return finding;
  const auto devices = texts_of(rdma_);
  const auto transports = texts_of(member(ucx_, "transports"));
  const bool used = std::any_of(transports.begin(), transports.end(), [](const std::string& name) {
    return name.starts_with("rc_") || name.starts_with("dc_") || name.starts_with("ud_");
  });
  finding.answer = devices.empty() ? Answer::kNo : answer_of(used);
  finding.value = devices.empty() ? "no device" : joined(devices) + (used ? "" : ", which UCX does not use");
  if (!devices.empty())
    finding.to_do = "Look for the cause with ibv_devinfo and `ucx_info -d`; UCX needs its libucx-ib module";
  return finding;
}

Finding Findings::tls() const {
  Finding finding{
      kTls, answer_of(fact(kernel_, "tls")), {}, "fast encrypted links", "Use a kernel with CONFIG_TLS"};
  if (finding.answer == Answer::kNo && fact(kernel_, "tls_module") == true) {
    finding.value = "the module is installed, but not loaded";
    finding.to_do = "Run `modprobe tls`";
  }
  return finding;
}

struct Need {
  const char* what;
  std::vector<const char*> findings;
};

std::vector<Need> needs() {
  const std::vector<const char*> engine = {kDriver,      kDevices,     kVirtualMemory,
                                           kDescriptors, kMemoryFiles, kUcx};
  const auto with = [&](std::vector<const char*> more) {
    std::vector<const char*> all = engine;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  return {
      {"move programs that use ckpt.h, to other nodes", engine},
      {"move programs that use ckpt.h, to another GPU of this node", with({kSecondDevice})},
      {"swap the GPU of unmodified programs on this node", with({kSecondDevice, kCheckpoint, kChangeGpu})},
      {"move unmodified programs to other nodes",
       with({kCheckpoint, kChangeGpu, kRoot, kPidNamespaces, kCriu, kMemoryFolder})},
      {"copy host memory of unmodified programs before the pause", {kRoot, kCriu, kWriteTracking}},
      {"restore host memory of unmodified programs after the pause", {kRoot, kCriu, kLazyPages}},
      {"send GPU memory by RDMA, without a copy in host memory",
       {kDevices, kDirectRdma, kUcx, kUcxCuda, kRdma}},
  };
}

Ability evaluate(const Need& need, const std::vector<Finding>& findings) {
  Ability ability{need.what, Answer::kYes, {}};
  for (const char* name : need.findings) {
    const auto finding =
        std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.what == name; });
    if (finding == findings.end() || finding->answer == Answer::kYes) continue;
    // Unknown requirements are omitted if another requirement is not satisfied, because that requirement is
    // often the cause.
    if (ability.answer == Answer::kUnknown && finding->answer == Answer::kNo) ability.missing.clear();
    if (ability.answer != Answer::kNo) ability.answer = finding->answer;
    if (ability.answer == finding->answer) ability.missing.emplace_back(name);
  }
  return ability;
}

Cell cell_of(Answer answer) {
  return {name_of(answer), answer == Answer::kYes  ? Tone::kGood
                           : answer == Answer::kNo ? Tone::kWarning
                                                   : Tone::kFaint};
}

// Returns the advice of the finding. The first line is indented by two blanks, and other lines by four.
std::string advice_of(const Finding& finding, const Layout& layout) {
  constexpr std::size_t kIndent = 4;
  std::string out;
  const std::size_t width =
      layout.width == kUnlimited ? kUnlimited : std::max(layout.width, 2 * kIndent) - kIndent;
  for (const std::string& line : wrapped(printable(finding.what + ": " + finding.to_do), width))
    out += (out.empty() ? "  " : "    ") + line + "\n";
  return out;
}

}  // namespace

const char* name_of(Answer answer) noexcept {
  if (answer == Answer::kYes) return "yes";
  return answer == Answer::kNo ? "no" : "unknown";
}

Diagnosis diagnose(const Json& facts) {
  Diagnosis diagnosis;
  diagnosis.node = joined({text(member(facts, "node"), "name"), text(member(facts, "node"), "kernel")});
  diagnosis.findings = Findings(facts).list();
  for (const Need& need : needs()) diagnosis.abilities.push_back(evaluate(need, diagnosis.findings));
  return diagnosis;
}

std::string to_text(const Diagnosis& diagnosis, const Layout& layout) {
  Table abilities({"CAN", {"WHAT", {.min_width = 44}}, {"MISSING", {.rank = 1, .min_width = 24}}});
  for (const Ability& ability : diagnosis.abilities)
    abilities.add({cell_of(ability.answer), ability.what, joined(ability.missing)});
  Table findings({"HAS",
                  {"WHAT", {.min_width = 16}},
                  {"NEEDED FOR", {.rank = 2, .min_width = 20}},
                  {"VALUE", {.rank = 1, .min_width = 16}}});
  std::string advice;
  for (const Finding& finding : diagnosis.findings) {
    findings.add({cell_of(finding.answer), finding.what, finding.needed_for, finding.value});
    if (finding.answer != Answer::kYes) advice += advice_of(finding, layout);
  }
  return paragraph("This node: " + diagnosis.node, layout) + "\n" + abilities.text(layout) + "\n" +
         findings.text(layout) + (advice.empty() ? "" : "\nAdvice:\n" + advice);
}

}  // namespace ckpt::cli
