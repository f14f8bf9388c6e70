// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt-image/commands.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "libckpt/command_line/command_line.h"
#include "libckpt/store/peer/route.h"
#include "tools/ckpt-image/views.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::image_tool {
namespace {

struct Options {
  std::string folder, memory, job;
  std::uint64_t version = 0, from = 0, to = 0;
  bool json = false;
  std::string format = "table";
};

class Program {
 public:
  Program(const Options& options, std::ostream& out) : options_(options), out_(out) {}

  Result<int> list() {
    CKPT_TRYV(open());
    if (options_.job.empty()) {
      CKPT_TRY(jobs, checkpoint_store_->jobs());
      return show(jobs, kDone);
    }
    CKPT_TRY(whole, checkpoint_store_->versions(options_.job));
    CKPT_TRY(damaged, checkpoint_store_->damaged_versions(options_.job));
    return show(VersionList{whole, damaged}, kDone);
  }

  Result<int> inspect() {
    CKPT_TRYV(open());
    CKPT_TRY(reader, checkpoint_store_->open_version(options_.job, number()));
    return show(reader->version(), kDone);
  }

  Result<int> verify() {
    CKPT_TRYV(open());
    if (number()) return verify_version();
    checkpoint_store::ScrubReport all;
    for (const std::string& what : checkpoint_store_->damage()) all.findings.push_back({"vault", what});
    CKPT_TRY(jobs, checkpoint_store_->jobs());
    if (!options_.job.empty() &&
        std::none_of(jobs.begin(), jobs.end(), [&](const auto& job) { return job.job == options_.job; }))
      return Error(ErrorCode::kNotFound,
                   "The checkpoint store " + options_.folder + " has no job " + options_.job);
    nlohmann::json by_job = nlohmann::json::object();
    bool clean = all.is_clean();
    for (const auto& job : jobs) {
      if (!options_.job.empty() && job.job != options_.job) continue;
      CKPT_TRY(report, checkpoint_store_->verify(job.job));
      clean = clean && report.is_clean();
      by_job[job.job] = to_json(report);
      if (!as_json()) out_ << "job " << job.job << "\n" << to_table(report);
    }
    for (const auto& finding : all.findings)
      if (!as_json()) out_ << cli::printable(finding.what) << "\n";
    if (as_json())
      out_ << nlohmann::json{{"clean", clean}, {"damage", checkpoint_store_->damage()}, {"jobs", by_job}}
                  .dump(2)
           << "\n";
    return clean ? kDone : kDamaged;
  }

  Result<int> diff() {
    CKPT_TRYV(open());
    CKPT_TRY(difference, checkpoint_store_->diff(options_.job, options_.from, options_.to));
    return show(difference, kDone);
  }

 private:
  class Nowhere : public checkpoint_store::ChunkSink {
   public:
    Result<void> chunk(std::uint32_t, std::uint64_t, std::span<const std::byte>) override { return ok(); }
    Result<void> zero_chunk(std::uint32_t, std::uint64_t, std::uint64_t) override { return ok(); }
  };

  Result<void> open() {
    checkpoint_store::Route route;
    route.folder = options_.folder;
    route.memory = options_.memory;
    CKPT_TRY(opened, checkpoint_store::open_checkpoint_store(route, false));
    files_ = std::move(opened.files);
    checkpoint_store_ = std::move(opened.checkpoint_store);
    return ok();
  }

  // Reads and verifies a version. An error means that the version is damaged, or could not be read.
  Result<int> verify_version() {
    CKPT_TRY(reader, checkpoint_store_->open_version(options_.job, number()));
    Nowhere nowhere;
    CKPT_TRYV(reader->read_regions(nowhere, {}));
    for (const auto& blob : reader->version().blobs) {
      CKPT_TRYV(
          reader->read_blob(blob.name, [](std::span<const std::byte>) -> Result<void> { return ok(); }));
    }
    if (as_json()) {
      out_ << nlohmann::json{{"clean", true}, {"job", options_.job}, {"version", *number()}}.dump(2) << "\n";
    } else {
      out_ << "Version " << *number() << " of job " << options_.job
           << " can be restored: nothing is damaged\n";
    }
    return kDone;
  }

  [[nodiscard]] std::optional<std::uint64_t> number() const {
    return options_.version == 0 ? std::nullopt : std::optional(options_.version);
  }
  [[nodiscard]] bool as_json() const { return options_.json || options_.format == "json"; }
  template <class T>
  int show(const T& what, int code) {
    if (as_json()) {
      out_ << to_json(what).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      out_ << to_table(what);
    }
    return code;
  }

  const Options& options_;
  std::ostream& out_;
  std::unique_ptr<checkpoint_store::Files>
      files_;  // the files of checkpoint_store_, which is destroyed first
  std::unique_ptr<checkpoint_store::CheckpointStore> checkpoint_store_;
};

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCorrupt:
      return kDamaged;
    case ErrorCode::kInvalidArgument:
      return kUsage;
    default:
      return kRefused;
  }
}

Command add_command(Command& app, Options& options, const char* name, const char* what, bool needs_job) {
  Command command = app.add_subcommand(name, what);
  command.add_option("DIR", options.folder, "The checkpoint store's folder").required();
  Option job = command.add_option("JOB", options.job, "A job");
  if (needs_job) job.required();
  command.add_option("--memory", options.memory, "The checkpoint store's tier in memory");
  command.add_flag("--json", options.json, "Print JSON");
  command.add_option("-o", options.format, "table or json").one_of({"table", "json"});
  return command;
}

}  // namespace

int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Options options;
  CommandLine app("Inspects a checkpoint store, which holds images of jobs.", "ckpt-image");
  app.require_subcommand();
  const Command list = add_command(app, options, "list", "Jobs, or a job's versions", false);
  Command inspect = add_command(app, options, "inspect", "Regions, host state and labels of a version", true);
  Command verify =
      add_command(app, options, "verify", "Check every byte, or only the data that one version needs", false);
  Command diff = add_command(app, options, "diff", "Changes between two versions", true);
  inspect.add_option("VERSION", options.version, "Version number (default: the newest)").positive();
  verify.add_option("VERSION", options.version, "Version number (default: all)").positive();
  diff.add_option("FROM", options.from, "A version").required().positive();
  diff.add_option("TO", options.to, "A version").required().positive();
  if (const auto end = app.parse(arguments)) return end->print(out, err) == 0 ? kDone : kUsage;
  Program program(options, out);
  const auto result = list.is_given()      ? program.list()
                      : inspect.is_given() ? program.inspect()
                      : verify.is_given()  ? program.verify()
                                           : program.diff();
  if (result) return *result;
  err << "ckpt-image: " << cli::printable(result.error().to_string()) << "\n";
  return exit_code_of(result.error().code());
}

}  // namespace ckpt::image_tool
