// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench restore: compares reading a job's memory from its image with a plain read of the image's
// files by the same number of threads. Before each read, the files are dropped from the page cache, so that
// the disk is read.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "libckpt/base/fd.h"
#include "tools/bench/bench.h"
#include "tools/bench/jobs/jobs.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

constexpr std::uint64_t kSteps = 10;
constexpr std::size_t kReadBytes = std::size_t{4} << 20;  // the read size of a restore
constexpr unsigned kMaxThreads = 8;                       // maximum number of threads of a restore
constexpr double kMinOfPlain = 0.8;
constexpr double kNanosPerMs = 1e6;

// A scope in which software devices use no huge pages. A restore allocates its memory. A software device
// takes up to seconds to find huge pages for that memory, while a GPU takes no time for any pages.
class SmallPages {
 public:
  SmallPages() {
    if (const char* before = std::getenv(kName)) before_ = before;
    ::setenv(kName, "0", 1);
  }
  ~SmallPages() { before_ ? ::setenv(kName, before_->c_str(), 1) : ::unsetenv(kName); }
  SmallPages(const SmallPages&) = delete;
  SmallPages& operator=(const SmallPages&) = delete;

 private:
  static constexpr const char* kName = "CUDASIM_HUGE_PAGES";
  std::optional<std::string> before_;
};

struct Piece {
  const UniqueFd* file = nullptr;
  std::uint64_t at = 0;
};

struct Files {
  std::vector<UniqueFd> files;
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;
};

Result<Files> open_files(const std::string& folder) {
  Files all;
  std::error_code error;
  std::vector<std::uint64_t> sizes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (!entry.is_regular_file()) continue;
    all.files.emplace_back(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (!all.files.back()) return Error::from_errno("Opening " + entry.path().string());
    sizes.push_back(entry.file_size());
    all.bytes += sizes.back();
  }
  if (error || all.bytes == 0) return Error(ErrorCode::kNotFound, "There is no image in " + folder);
  for (std::size_t i = 0; i < all.files.size(); ++i)
    for (std::uint64_t at = 0; at < sizes[i]; at += kReadBytes) all.pieces.push_back({&all.files[i], at});
  return all;
}

Result<void> drop_from_cache(const Files& files) {
  for (const UniqueFd& file : files.files) {
    if (::fsync(file.get()) != 0 || ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) != 0)
      return Error::from_errno("Cannot drop an image's files from the page cache");
  }
  return ok();
}

// Reads all pieces of the files on several threads. Returns the duration in nanoseconds.
Result<double> read_plainly(const Files& files) {
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> bytes{0};
  const auto work = [&] {
    std::vector<char> buffer(kReadBytes);
    for (std::size_t i = next++; i < files.pieces.size(); i = next++) {
      const ssize_t got = ::pread(files.pieces[i].file->get(), buffer.data(), buffer.size(),
                                  static_cast<off_t>(files.pieces[i].at));
      bytes += static_cast<std::uint64_t>(std::max<ssize_t>(got, 0));
    }
  };
  const Nanos began = now_ns();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads); ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  const Nanos time = now_ns() - began;
  if (bytes != files.bytes) return Error(ErrorCode::kIo, "An image's files could not be read to their ends");
  return static_cast<double>(time);
}

}  // namespace

Result<void> bench_restore(const BenchOptions& options, Report& report) {
  const SmallPages small_pages;
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
  CKPT_TRY(job, cluster->run_job("hotset", timed_hotset_arguments(options.bytes)));
  CKPT_TRYV(cluster->wait_for_steps(job, kSteps));
  CKPT_TRY(snapshot, cluster->snapshot(job));
  CKPT_TRY(files, open_files(cluster->checkpoint_store()));
  const auto plain = [&]() -> Result<double> {
    CKPT_TRYV(drop_from_cache(files));
    return read_plainly(files);
  };
  const auto restore = [&]() -> Result<double> {
    CKPT_TRYV(drop_from_cache(files));
    CKPT_TRY(fill_ms, cluster->restore(job));
    return fill_ms * kNanosPerMs;
  };
  CKPT_TRY(times, interleave(options.pairs, {plain, restore}));
  CKPT_TRYV(cluster->stop(job));
  const std::vector<double> of_plain = ratios_of(times[0], times[1]);
  std::vector<Runs> rates;
  for (const Runs& side : times) {
    Runs& rate = rates.emplace_back();
    for (const double nanos : side) rate.push_back(static_cast<double>(files.bytes) / nanos);
  }
  Section& section = report.add_section(
      "restore", "Memory of hotset (" + std::to_string(options.bytes >> 20) +
                     " MiB) restored from its image, compared with a plain read of the image's files");
  section.set_columns({{"rate", "GB/s"}, {"of the plain read", ""}, {"stored of state", ""}});
  section.add_row("plain read, cold", {spread_of(rates[0]), {}, {}});
  section.add_row("restore, cold", {spread_of(rates[1]), spread_of(of_plain),
                                    single(static_cast<double>(files.bytes) / snapshot.state_bytes)});
  section.add_goal("restore / plain read", spread_of(of_plain).median, Relation::kAtLeast, kMinOfPlain);
  section.add_note(
      "from the order to the mover until memory holds the image and was compared with it; rates count the "
      "files' bytes");
  return ok();
}

}  // namespace ckpt::bench
