// SPDX-License-Identifier: Apache-2.0
#include "agent/pauses/rehearsal.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "agent/host_process/run_program.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxRehearsalSaid = 64 << 10;
constexpr std::size_t kMaxRehearsed = 16;
constexpr std::int64_t kMaxRehearsedNumber = std::int64_t{1} << 50;
constexpr double kLineMib = 1 << 20;
constexpr Nanos kWordOfOthers = 2 * kNanosPerMs;  // time for the messages for which a commit waits, in
                                                  // addition to its record

Result<std::int64_t> rehearsed_number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer())
    return Error(ErrorCode::kCorrupt, std::string("The rehearsal's \"") + key + "\" is not a whole number");
  const auto value = found->get<std::int64_t>();
  if (value < 0 || value > kMaxRehearsedNumber)
    return Error(ErrorCode::kCorrupt, std::string("The rehearsal's \"") + key + "\" is out of range");
  return value;
}

Result<RehearsedProcess> parse_process(const Json& json) {
  if (!json.is_object()) return Error(ErrorCode::kCorrupt, "A rehearsed process is not a JSON object");
  CKPT_TRY(bytes, rehearsed_number(json, "bytes"));
  CKPT_TRY(back, rehearsed_number(json, "restored_bytes"));
  CKPT_TRY(dump, rehearsed_number(json, "dump_ns"));
  CKPT_TRY(restore, rehearsed_number(json, "restore_ns"));
  RehearsedProcess process;
  process.bytes = static_cast<std::uint64_t>(bytes);
  process.restored_bytes = static_cast<std::uint64_t>(back);
  process.dump_ns = dump;
  process.restore_ns = restore;
  CKPT_TRY(dump_items, rehearsed_number(json, "dump_items_ns"));
  CKPT_TRY(restore_items, rehearsed_number(json, "restore_items_ns"));
  process.dump_items = dump_items;
  process.restore_items = restore_items;
  return process;
}

wire::CostLine dump_line(const RehearsedProcess& small, const RehearsedProcess& large) {
  const double mib = static_cast<double>(large.bytes - small.bytes) / kLineMib;
  const auto without_items = [](const RehearsedProcess& process) {
    return static_cast<double>(std::max<Nanos>(0, process.dump_ns - process.dump_items));
  };
  const double slope = std::max(0.0, (without_items(large) - without_items(small)) / mib);
  const double base = without_items(small) - slope * static_cast<double>(small.bytes) / kLineMib;
  return {static_cast<Nanos>(std::max(0.0, base)), static_cast<Nanos>(slope)};
}

// Returns the line of a restore. Most memory of the larger process follows it, so the two processes differ
// too little to measure a rate. The function uses the rate of new memory.
wire::CostLine restore_line(const std::vector<RehearsedProcess>& processes, std::uint64_t write_rate) {
  const double slope = write_rate == 0 ? 0 : kLineMib * 1e9 / static_cast<double>(write_rate);
  double base = 0;
  for (const RehearsedProcess& process : processes)
    base += static_cast<double>(std::max<Nanos>(0, process.restore_ns - process.restore_items)) -
            slope * static_cast<double>(process.restored_bytes) / kLineMib;
  base /= static_cast<double>(processes.size());
  return {static_cast<Nanos>(std::max(0.0, base)), static_cast<Nanos>(slope)};
}

// Adds a factor to the line: how much longer the items of `many` take than on a typical server.
void add_items(wire::CostLine& line, Nanos took, std::uint64_t bytes, Nanos items) {
  if (items <= 0) return;
  const Nanos rest = std::max<Nanos>(0, took - line.at(static_cast<std::int64_t>(bytes)));
  line.items_permille = items_permille_of(static_cast<double>(rest) / static_cast<double>(items));
}

// Returns the helper's last message, from one line of a file that only the helper writes.
Result<RehearsalFacts> read_rehearsal(const std::string& path) {
  CKPT_TRY(said, read_file(path, kMaxRehearsalSaid));
  ::unlink(path.c_str());
  const std::size_t at = said.rfind("{\"rehearsal\":");
  if (at == std::string::npos) {
    while (!said.empty() && said.back() == '\n') said.pop_back();
    return Error(ErrorCode::kUnavailable,
                 said.empty() ? "The rehearsal printed nothing" : said.substr(said.rfind('\n') + 1));
  }
  const Json line = Json::parse(said.substr(at, said.find('\n', at) - at), nullptr, false);
  if (!line.is_object()) return Error(ErrorCode::kCorrupt, "The rehearsal's answer is not a JSON object");
  return parse_rehearsal(line["rehearsal"]);
}

}  // namespace

Json to_json(const RehearsalFacts& facts) {
  Json processes = Json::array();
  for (const RehearsedProcess& process : facts.processes)
    processes.push_back({{"bytes", process.bytes},
                         {"restored_bytes", process.restored_bytes},
                         {"dump_ns", process.dump_ns},
                         {"restore_ns", process.restore_ns},
                         {"dump_items_ns", process.dump_items},
                         {"restore_items_ns", process.restore_items}});
  return {{"processes", processes},
          {"record_ns", facts.record_ns},
          {"read_bytes_per_second", facts.memory.read},
          {"write_bytes_per_second", facts.memory.write}};
}

Result<RehearsalFacts> parse_rehearsal(const Json& json) {
  if (!json.is_object() || !json.contains("processes") || !json["processes"].is_array())
    return Error(ErrorCode::kCorrupt, "The rehearsal names no processes");
  if (json["processes"].size() > kMaxRehearsed)
    return Error(ErrorCode::kCorrupt, "The rehearsal names too many processes");
  RehearsalFacts facts;
  for (const Json& each : json["processes"]) {
    CKPT_TRY(process, parse_process(each));
    facts.processes.push_back(process);
  }
  CKPT_TRY(record, rehearsed_number(json, "record_ns"));
  CKPT_TRY(read, rehearsed_number(json, "read_bytes_per_second"));
  CKPT_TRY(write, rehearsed_number(json, "write_bytes_per_second"));
  facts.record_ns = record;
  facts.memory.read = static_cast<std::uint64_t>(read);
  facts.memory.write = static_cast<std::uint64_t>(write);
  return facts;
}

Task<Result<RehearsalFacts>> ask_rehearsal(RehearsalOrder order) {
  ProcessSpec spec;
  spec.argv.emplace_back(order.program);
  spec.argv.emplace_back("--rehearse");
  spec.argv.emplace_back(order.home);
  if (!order.criu.empty()) {
    spec.argv.emplace_back("--criu");
    spec.argv.emplace_back(order.criu);
  }
  spec.output_path = order.home + "/rehearsal.out";
  spec.own_session = true;
  const std::string path = spec.output_path;
  ::unlink(path.c_str());
  CKPT_CO_TRY(status, co_await host::run_program(std::move(spec), order.deadline));
  auto facts = read_rehearsal(path);
  if (facts) co_return facts;
  co_return Error(ErrorCode::kUnavailable, "The rehearsal terminated with " + describe_wait_status(status))
      .caused_by(std::move(facts).error());
}

void record_rehearsal(PauseCosts& costs, const RehearsalFacts& facts) {
  costs.learn_memory(facts.memory);
  std::vector<RehearsedProcess> sizes = facts.processes;
  std::optional<RehearsedProcess> many;
  if (sizes.size() > 2) {
    many = sizes.back();
    sizes.pop_back();
  }
  if (sizes.size() == 2 && sizes.front().bytes < sizes.back().bytes) {
    wire::CostLine dump = dump_line(sizes.front(), sizes.back());
    wire::CostLine restore = restore_line(sizes, facts.memory.write);
    if (many) {
      add_items(dump, many->dump_ns, many->bytes, many->dump_items);
      add_items(restore, many->restore_ns, many->restored_bytes, many->restore_items);
    }
    for (const PauseKind kind : {PauseKind::kProcess, PauseKind::kAdoptedProcess}) {
      costs.assume(kind, PauseTerm::kDump, dump);
      costs.assume(kind, PauseTerm::kHostRestore, restore);
    }
  }
  if (facts.record_ns == 0) return;
  for (auto kind = PauseKind::kCooperative; is_known(kind);
       kind = static_cast<PauseKind>(static_cast<int>(kind) + 1))
    costs.assume(kind, PauseTerm::kCommit, {facts.record_ns + kWordOfOthers, 0});
}

}  // namespace ckpt::agent
