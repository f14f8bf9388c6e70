// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/job_requests.h"

#include <array>
#include <cmath>
#include <set>

#include "coordinator/requests/body_reader.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMaxMigrationMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kMaxFieldBytes = std::int64_t{1} << 50;
constexpr std::int64_t kDefaultTimeoutMs = 600'000;
constexpr std::int64_t kMaxShadowBytes = std::int64_t{1} << 40;
constexpr std::int64_t kMaxPriority = 1'000;
constexpr std::int64_t kMaxRanks = 1024;
constexpr std::size_t kLongestFolder = 4096;

// Reads how chunks are encoded and how much of the GPU the copying may use.
Result<void> read_copying(BodyReader& body, wire::MigrateOptions& options) {
  options.codec = body.named<wire::CodecMode>("codec").value_or(wire::CodecMode::kAuto);
  options.shadow_memory_bytes =
      static_cast<std::uint64_t>(body.integer("shadow_memory_bytes", 0, kMaxShadowBytes).value_or(0));
  const double slowdown = body.number("slowdown_percent", 0, 100).value_or(0);
  options.slowdown_permille = static_cast<std::uint32_t>(std::lround(slowdown * 10));
  if (slowdown > 0 && options.slowdown_permille == 0)
    return Error(ErrorCode::kInvalidArgument,
                 "Field \"slowdown_percent\" must be at least 0.1, or 0 for no limit");
  if (options.codec == wire::CodecMode::kDifference && options.shadow_memory_bytes == 0)
    return Error(ErrorCode::kInvalidArgument, "Codec \"difference\" needs the field \"shadow_memory_bytes\"");
  return ok();
}

// Reads the standby's new program, and the permitted differences of its tensors (missing, new or changed).
Result<void> read_new_program(BodyReader& body, wire::MigrateOptions& options) {
  options.new_argv = body.texts("exec").value_or(std::vector<std::string>());
  const auto allow = body.texts("allow");
  for (const std::string& word : allow.value_or(std::vector<std::string>())) {
    const std::uint8_t bit = word == "missing"   ? wire::kAllowMissing
                             : word == "new"     ? wire::kAllowNew
                             : word == "changed" ? wire::kAllowChanged
                                                 : 0;
    if (bit == 0)
      return Error(ErrorCode::kInvalidArgument,
                   "Field \"allow\" accepts only the words missing, new and changed");
    options.allowed_differences |= bit;
  }
  if (!options.new_argv.empty() && options.new_argv.front().empty())
    return Error(ErrorCode::kInvalidArgument, "Field \"exec\" must name a command");
  if (allow && options.new_argv.empty())
    return Error(ErrorCode::kInvalidArgument, "Field \"allow\" needs the field \"exec\"");
  return ok();
}

// Reads the number of ranks and where they are placed.
Result<GangShape> read_gang(BodyReader& body) {
  const auto usage = [](const std::string& reason) { return Error(ErrorCode::kInvalidArgument, reason); };
  GangShape gang;
  const auto gpus = body.integer("gpus", 1, kMaxRanks);
  const auto ranks = body.integer("ranks", 1, kMaxRanks);
  gang.nodes = body.texts("nodes").value_or(std::vector<std::string>());
  gang.ranks = static_cast<std::size_t>(ranks.value_or(gpus.value_or(1)));
  gang.one_node = !ranks;
  if (ranks && gpus.value_or(1) != 1)
    return usage(
        "Fields \"gpus\" and \"ranks\" cannot be combined: \"gpus\" starts ranks on one node, \"ranks\" on "
        "several");
  if (!ranks && !gang.nodes.empty()) return usage("Field \"nodes\" needs the field \"ranks\"");
  if (gang.nodes.size() > gang.ranks) return usage("Field \"nodes\" names more nodes than there are ranks");
  const std::set<std::string> different(gang.nodes.begin(), gang.nodes.end());
  if (different.size() != gang.nodes.size()) return usage("Field \"nodes\" names a node twice");
  return gang;
}

// Checks the length of a snapshot's destination, and that it does not contain "..".
Result<void> check_destination(const std::string& to) {
  const bool up = ("/" + to + "/").find("/../") != std::string::npos;
  if (to.size() > kLongestFolder || up)
    return Error(ErrorCode::kInvalidArgument,
                 "Field \"to\" must be a node, or the absolute path of a folder");
  return ok();
}

}  // namespace

Result<MigrateRequest> read_migrate(const HttpRequest& request, bool& dry_run) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  MigrateRequest migrate;
  migrate.to = body.text("to").value_or("auto");
  migrate.network = body.text("network").value_or("");
  migrate.ranks = body.numbers("ranks", kMaxRanks - 1).value_or(std::vector<std::uint32_t>());
  migrate.options.strategy =
      body.named<wire::MigrateStrategy>("strategy").value_or(wire::MigrateStrategy::kLive);
  migrate.communicators = body.named<wire::Communicators>("communicators");
  migrate.connections = body.named<wire::Connections>("connections");
  const auto downtime_ms = body.number("max_downtime_ms", 0, kMaxMigrationMs);
  // An explicit downtime limit is binding, unless the request sets if_not_converged.
  const auto otherwise = downtime_ms ? wire::NotConverged::kAbort : wire::NotConverged::kSwitch;
  migrate.options.if_not_converged = body.named<wire::NotConverged>("if_not_converged").value_or(otherwise);
  migrate.options.max_downtime_ns =
      downtime_ms ? static_cast<std::int64_t>(*downtime_ms * kNanosPerMs) : kDefaultMaxDowntimeNs;
  migrate.options.bandwidth_bytes_per_second =
      static_cast<std::uint64_t>(body.integer("bandwidth", 0, kMaxFieldBytes).value_or(0));
  migrate.options.max_rounds = static_cast<std::uint32_t>(body.integer("max_rounds", 0, 100'000).value_or(0));
  const auto copying = read_copying(body, migrate.options);
  const auto program = read_new_program(body, migrate.options);
  migrate.timeout_ms = body.integer("timeout_ms", 1, kMaxMigrationMs).value_or(kDefaultTimeoutMs);
  migrate.reason = body.text("reason").value_or("");
  dry_run = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(copying);
  CKPT_TRYV(program);
  return migrate;
}

Result<SubmitRequest> read_submit(const HttpRequest& request, bool& dry_run) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  SubmitRequest submit;
  submit.spec.argv = body.texts("argv").value_or(std::vector<std::string>());
  submit.spec.cwd = body.text("cwd").value_or("");
  submit.spec.name = body.text("name").value_or("");
  submit.spec.env = body.environment("env").value_or(std::vector<std::string>());
  submit.node = body.text("node");
  if (const auto gpu = body.integer("gpu", 0, 1024)) submit.gpu = static_cast<std::uint32_t>(*gpu);
  const auto gang = read_gang(body);
  submit.spec.gang.communicators =
      body.named<wire::Communicators>("communicators").value_or(wire::Communicators::kOverlap);
  submit.spec.connections = body.named<wire::Connections>("connections").value_or(wire::Connections::kRefuse);
  submit.spec.namespaces = body.named<wire::Namespaces>("namespaces").value_or(wire::Namespaces::kNone);
  submit.spec.private_tmp = body.boolean("private_tmp").value_or(false);
  submit.spec.gpu_memory_bytes =
      static_cast<std::uint64_t>(body.integer("gpu_memory_bytes", 0, kMaxFieldBytes).value_or(0));
  submit.spec.priority =
      static_cast<std::int32_t>(body.integer("priority", -kMaxPriority, kMaxPriority).value_or(0));
  submit.preempt = body.boolean("preempt").value_or(false);
  dry_run = body.boolean("dry_run").value_or(false);
  const std::string mode = body.text("mode").value_or("cooperative");
  CKPT_TRYV(body.finish());
  CKPT_TRYV(gang);
  submit.gang = *gang;
  const auto usage = [](const std::string& reason) { return Error(ErrorCode::kInvalidArgument, reason); };
  if (mode != "cooperative" && mode != "transparent")
    return usage("Field \"mode\" must be cooperative or transparent");
  submit.spec.mode = mode == "transparent" ? MigrationMode::kTransparent : MigrationMode::kCooperative;
  if (submit.spec.has_own_namespaces() && mode != "transparent")
    return usage("Field \"namespaces\" can be own only for a job of mode transparent");
  if (submit.spec.private_tmp && !submit.spec.has_own_namespaces())
    return usage("Field \"private_tmp\" requires field \"namespaces\" to be own");
  if (submit.spec.argv.empty() || submit.spec.argv.front().empty())
    return usage("Field \"argv\" must name a command");
  if (!submit.spec.cwd.starts_with('/')) return usage("Field \"cwd\" must be an absolute path");
  if (!submit.spec.name.empty() && !valid_job_name(submit.spec.name))
    return usage("\"" + submit.spec.name +
                 "\" is not a valid job name: use at most 63 letters, digits, '.', '_' and '-', begin with a "
                 "letter or digit, and do not use the form of a job id");
  if (submit.gpu && !submit.node) return usage("Field \"gpu\" needs the field \"node\"");
  if (submit.node && !submit.gang.one_node)
    return usage("Fields \"ranks\" and \"node\" cannot be combined: use \"nodes\" with \"ranks\"");
  return submit;
}

Result<AdoptRequest> read_adopt(const HttpRequest& request) {
  constexpr std::int64_t kMaxPid = std::int64_t{1} << 30;
  CKPT_TRY(body, BodyReader::parse(request.body));
  AdoptRequest adopt;
  const auto pid = body.integer("pid", 2, kMaxPid);
  adopt.name = body.text("name").value_or("");
  adopt.node = body.text("node");
  adopt.machine = body.text("machine").value_or("");
  adopt.start_ticks = static_cast<std::uint64_t>(body.integer("start_ticks", 0, INT64_MAX).value_or(0));
  CKPT_TRYV(body.finish());
  if (!pid) return Error(ErrorCode::kInvalidArgument, "Field \"pid\" must be the id of a process");
  adopt.pid = static_cast<std::int32_t>(*pid);
  if (!adopt.name.empty() && !valid_job_name(adopt.name))
    return Error(ErrorCode::kInvalidArgument, "\"" + adopt.name + "\" is not a valid job name");
  return adopt;
}

Result<ProtectRequest> read_protect(const HttpRequest& request) {
  constexpr std::int64_t kMinEveryMs = 1'000;
  constexpr std::int64_t kMaxEveryMs = std::int64_t{1000} * 3600 * 24 * 30;
  constexpr std::int64_t kMaxKept = 1000;
  CKPT_TRY(body, BodyReader::parse(request.body));
  ProtectRequest wish;
  const auto every = body.integer("every_ms", kMinEveryMs, kMaxEveryMs);
  wish.to = body.text("to").value_or("");
  wish.keep = static_cast<std::uint32_t>(body.integer("keep", 1, kMaxKept).value_or(wish.keep));
  wish.force = body.boolean("force").value_or(false);
  wish.dry_run = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(check_destination(wish.to));
  if (!every) return Error(ErrorCode::kInvalidArgument, "Field \"every_ms\" is missing");
  wish.every_ms = *every;
  return wish;
}

Result<std::string> read_destination(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  std::string to = body.text("to").value_or("");
  CKPT_TRYV(body.finish());
  CKPT_TRYV(check_destination(to));
  return to;
}

}  // namespace ckpt::coordinator
