// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/rehearsed_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "agent/host_process/criu.h"
#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/page_stream.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/run_program.h"
#include "agent/migration/modes/process_image.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/pauses/rehearsal.h"
#include "libckpt/base/clock.h"

namespace ckpt::agent {
namespace {

constexpr int kReadyFd = 3;
constexpr std::uint64_t kRehearsedMib = std::uint64_t{1} << 20;
constexpr std::array<std::uint64_t, 2> kRehearsedSizes = {16 * kRehearsedMib, 128 * kRehearsedMib};
constexpr std::chrono::seconds kRehearsedStarts{20};
constexpr Milliseconds kRehearsedCriu{30000};
constexpr std::uint64_t kRehearsedRoom =
    32 * kRehearsedMib;  // space for the process's other memory and its other images
constexpr std::size_t kRehearsedRecords = 5;
constexpr std::size_t kRehearsedRecordBytes = 4096;
constexpr std::uint64_t kMaxMemoryRate = std::uint64_t{1} << 45;

Result<UniqueFd> rehearsed_null() {
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error::from_errno("Cannot open /dev/null");
  return null;
}

// Runs after the fork, so the function calls only async-signal-safe functions.
[[noreturn]] void become_rehearsed(char* const* argv, const char* folder, int null, int ready) {
  bool good = ::setsid() > 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::chdir(folder) == 0;
  for (int fd = 0; fd < kReadyFd; ++fd) good = good && ::dup2(null, fd) >= 0;
  good = good && (ready == kReadyFd ? ::fcntl(ready, F_SETFD, 0) : ::dup2(ready, kReadyFd)) >= 0;
  ::close_range(kReadyFd + 1, ~0U, 0);
  if (good) ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

// A root process in its own PID namespace. All processes of the namespace are killed when the object is
// destroyed.
class RehearsedTree {
 public:
  explicit RehearsedTree(pid_t root) : root_(root) {}
  RehearsedTree(RehearsedTree&& other) noexcept : root_(std::exchange(other.root_, 0)) {}
  RehearsedTree& operator=(RehearsedTree&&) = delete;
  ~RehearsedTree() { end(); }
  [[nodiscard]] pid_t root() const noexcept { return root_; }
  void end() {
    if (root_ <= 0) return;
    host::kill_source(root_);
    ::waitpid(root_, nullptr, 0);
    root_ = 0;
  }

 private:
  pid_t root_;
};

Result<RehearsedTree> start_process(const std::string& folder, std::uint64_t bytes, bool many) {
  CKPT_TRY(null, rehearsed_null());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Cannot create a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  std::array<std::string, 4> words = {"gpumigrate-agent", kRehearsedFlag, std::to_string(bytes),
                                      kRehearsedManyFlag};
  std::array<char*, 5> argv = {words[0].data(), words[1].data(), words[2].data(),
                               many ? words[3].data() : nullptr, nullptr};
  const long root = ::syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (root < 0) return Error::from_errno("Cannot create a PID namespace");
  if (root == 0) become_rehearsed(argv.data(), folder.c_str(), null.get(), write_end.get());
  RehearsedTree tree(static_cast<pid_t>(root));
  write_end.reset();
  pollfd ready{read_end.get(), POLLIN, 0};
  char word = 0;
  const auto limit = static_cast<int>(std::chrono::milliseconds(kRehearsedStarts).count());
  if (::poll(&ready, 1, limit) <= 0 || ::read(read_end.get(), &word, 1) != 1)
    return Error(ErrorCode::kUnavailable, "The process that should be dumped did not start");
  return tree;
}

// Copies the image as it would arrive at a target. Measures how fast memory is read and how fast untouched
// memory is written.
Result<host::PackedImage> copy_of(const host::PackedImage& image, MemoryRates& rates) {
  void* from = ::mmap(nullptr, image.bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, image.file.get(), 0);
  if (from == MAP_FAILED) return Error::from_errno("Cannot read the image");
  auto unmap = [&](void* memory) { ::munmap(memory, image.bytes); };
  const std::unique_ptr<void, decltype(unmap)> held(from, unmap);
  const auto* bytes = static_cast<const std::byte*>(from);
  const auto rate = [&](Nanos took) {
    const double each =
        static_cast<double>(image.bytes) * 1e9 / static_cast<double>(std::max<Nanos>(took, 1));
    return std::min(kMaxMemoryRate, static_cast<std::uint64_t>(each));
  };
  host::PackedImage copy;
  CKPT_TRY(file, make_memory_file("gpumigrate-rehearsal", image.bytes));
  copy.file = std::move(file);
  copy.bytes = image.bytes;
  const Nanos began = now_ns();
  if (::lseek(copy.file.get(), 0, SEEK_SET) != 0) return Error::from_errno("Cannot write the image");
  CKPT_TRYV(write_all(copy.file.get(), std::span(bytes, image.bytes)));
  const Nanos written = now_ns();
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at + sizeof sum <= image.bytes; at += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    sum += word;
  }
  const Nanos read = now_ns();
  if (sum == 0)
    return Error(ErrorCode::kCorrupt, "The image is empty");  // uses the sum, so that the memory is really
                                                              // read
  rates.write = std::max(rates.write, rate(written - began));
  rates.read = std::max(rates.read, rate(read - written));
  return copy;
}

// Measures the journal's work in a pause: an overwrite of allocated space, and its sync to the disk.
Result<Nanos> time_of_record(const std::string& folder) {
  const std::string path = folder + "/record";
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return Error::from_errno("Cannot create " + path);
  std::vector<std::byte> bytes(kRehearsedRecordBytes * kRehearsedRecords);
  CKPT_TRYV(write_all(file.get(), bytes));
  if (::fsync(file.get()) != 0) return Error::from_errno("Cannot write " + path);
  std::array<Nanos, kRehearsedRecords> took{};
  for (std::size_t i = 0; i < kRehearsedRecords; ++i) {
    const Nanos began = now_ns();
    const auto at = static_cast<off_t>(i * kRehearsedRecordBytes);
    if (::pwrite(file.get(), "record", 6, at) != 6 || ::fdatasync(file.get()) != 0)
      return Error::from_errno("Cannot write " + path);
    took[i] = now_ns() - began;
  }
  ::unlink(path.c_str());
  std::sort(took.begin(), took.end());
  return took[kRehearsedRecords / 2];
}

class Rehearsal {
 public:
  Rehearsal(std::string folder, host::Criu criu) : folder_(std::move(folder)), criu_(std::move(criu)) {}

  Task<Result<RehearsalFacts>> run() {
    CKPT_CO_TRY(record, time_of_record(folder_));
    restores_lazily_ = co_await criu_.restores_lazily(folder_);
    facts_.record_ns = record;
    for (const std::uint64_t bytes : kRehearsedSizes) {
      CKPT_CO_TRYV(co_await try_process(bytes, false));
    }
    // If the node's limits do not allow the rehearsed numbers of threads, descriptors and mappings, the cost
    // factor of a typical server is used.
    const auto many = co_await try_process(kRehearsedSizes.front(), true);
    if (!many) std::fprintf(stderr, "%s\n", many.error().to_string().c_str());
    co_return facts_;
  }

 private:
  Task<Result<void>> try_process(std::uint64_t bytes, bool many) {
    CKPT_CO_TRYV(host::check_memory_left(4 * bytes));
    CKPT_CO_TRY(tree, start_process(folder_, bytes, many));
    const host::TreeSize size = host::size_of_tree(tree.root());
    RehearsedProcess done;
    done.bytes = size.private_bytes;
    CKPT_CO_TRY(image, co_await dump(tree.root(), bytes, done));
    tree.end();
    CKPT_CO_TRY(arrived, copy_of(image, facts_.memory));
    CKPT_CO_TRYV(co_await restore(std::move(arrived), done));
    done.dump_items = dump_cost(size);
    done.restore_items = restore_cost(size);
    facts_.processes.push_back(done);
    co_return ok();
  }

  // Dumps the process in the same way as ProcessSource.
  Task<Result<host::PackedImage>> dump(pid_t root, std::uint64_t bytes, RehearsedProcess& done) {
    CKPT_CO_TRY(stream, host::PageStream::create(bytes + kRehearsedRoom, bytes));
    const Nanos began = now_ns();
    CKPT_CO_TRY(estimate, host::estimate_dump(root));
    CKPT_CO_TRY(folder, make_folder("source", estimate.bytes - estimate.largest_bytes));
    CKPT_CO_TRYV(stream->begin(folder.path(), estimate.largest_position, [](std::uint64_t) {}));
    host::DumpOptions options;
    options.images = options.work = folder.path();
    options.timeout = kRehearsedCriu;
    options.may_repeat = [&stream] { return !stream->has_any(); };
    CKPT_CO_TRYV(co_await criu_.dump(root, options));
    CKPT_CO_TRY(pages, stream->finish());
    auto packed = host::pack_folder(folder.path(), std::move(pages));
    done.dump_ns = now_ns() - began;
    co_return packed;
  }

  // Restores the process in the same way as ProcessTarget and the keeper.
  Task<Result<void>> restore(host::PackedImage image, RehearsedProcess& done) {
    const Nanos began = now_ns();
    CKPT_CO_TRY(folder, make_folder("target", 0));
    CKPT_CO_TRYV(host::unpack_folder(image.file.get(), image.bytes, folder.path()));
    host::RestoreOptions options;
    options.images = options.work = folder.path();
    std::uint64_t lazy = 0;
    if (restores_lazily_) {
      CKPT_CO_TRY(pages, host::choose_lazy_pages(folder.path()));
      lazy = pages.lazy;
    }
    options.lazy = lazy > 0;
    done.restored_bytes = host::restored_bytes(done.bytes, lazy);
    if (options.lazy) {
      CKPT_CO_TRY(
          ready, co_await host::run_program(criu_spec(host::lazy_pages_command(folder.path()), folder.path()),
                                            kRehearsedCriu));
      if (ready != 0) co_return Error(ErrorCode::kUnavailable, "gpumigrate-lazy-pages did not start");
    }
    auto status =
        co_await host::run_program(criu_spec(criu_.restore_command(options), folder.path()), kRehearsedCriu);
    auto tree = restored(host::Criu::pid_file(options));
    CKPT_CO_TRY(ended, std::move(status));
    if (ended != 0)
      co_return Error(ErrorCode::kUnavailable, "CRIU cannot restore the process that it has dumped: " +
                                                   host::Criu::first_error(host::Criu::restore_log(options)));
    CKPT_CO_TRY(back, std::move(tree));
    CKPT_CO_TRYV(host::resume_source(back.root()));
    done.restore_ns = now_ns() - began;
    co_return ok();
  }

  static ProcessSpec criu_spec(std::vector<std::string> argv, const std::string& folder) {
    ProcessSpec spec;
    spec.argv = std::move(argv);
    spec.output_path = folder + "/criu.out";
    spec.own_session = true;
    return spec;
  }

  // Takes over the restored process as a child of this process. In a move, the restored process would be the
  // keeper's child.
  static Result<RehearsedTree> restored(const std::string& path) {
    CKPT_TRY(text, read_file(path, 64));
    pid_t pid = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), pid);
    if (parsed.ec != std::errc() || pid <= 1)
      return Error(ErrorCode::kIo, path + " does not contain a process id");
    return RehearsedTree(pid);
  }

  Result<host::MemoryFolder> make_folder(const char* side, std::uint64_t bytes) {
    CKPT_TRY(place, host::find_memory_place());
    return host::MemoryFolder::create(place, folder_prefix(folder_) + kRehearsalImages + side, bytes);
  }

  std::string folder_;
  host::Criu criu_;
  bool restores_lazily_ = false;
  RehearsalFacts facts_;
};

Task<Result<RehearsalFacts>> rehearse(std::string home, std::string configured) {
  CKPT_CO_TRY(criu, co_await host::Criu::find(configured, home));
  Rehearsal rehearsal(home, std::move(criu));
  co_return co_await rehearsal.run();
}

}  // namespace

int run_rehearsal(const std::string& home, const std::string& criu) {
  asio::io_context loop;
  std::optional<Result<RehearsalFacts>> facts;
  const auto work = [&]() -> Task<> {
    facts = co_await rehearse(home, criu);
    loop.stop();
  };
  control::spawn(loop.get_executor(), "rehearsal", work());
  // The rehearsal's images and processes are removed when the loop stops.
  asio::signal_set stop(loop, SIGTERM, SIGINT);
  stop.async_wait([&loop](const boost::system::error_code& error, int) {
    if (!error) loop.stop();
  });
  loop.run();
  if (!facts || !*facts) {
    std::printf("%s\n",
                facts ? facts->error().to_string().c_str() : "The rehearsal ended before it had a result");
    return 1;
  }
  const nlohmann::ordered_json line = {{"rehearsal", to_json(**facts)}};
  std::printf("%s\n", line.dump().c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

namespace {

// Creates many threads, descriptors and mappings. Adjacent pages have different rights, so that each page is
// a mapping.
bool make_many_things() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, kRehearsedMappings * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) return false;
  for (std::size_t i = 0; i < kRehearsedMappings; i += 2) {
    if (::mprotect(memory + i * page, page, PROT_READ | PROT_WRITE) != 0) return false;
  }
  for (int i = 0; i < kRehearsedDescriptors; ++i) {
    if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) return false;
  }
  try {
    for (int i = 0; i < kRehearsedThreads; ++i) {
      std::thread([] {
        for (;;) ::pause();
      }).detach();
    }
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

int be_rehearsed(std::uint64_t bytes, bool many) {
  const pid_t child = ::fork();
  if (child < 0) return 1;
  if (child > 0) {
    ::close(kReadyFd);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return 0;
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* words = static_cast<std::uint64_t*>(memory);
  std::uint64_t value = 0x9e3779b97f4a7c15U;
  for (std::uint64_t i = 0; i < bytes / sizeof value; ++i) words[i] = value += 0x9e3779b97f4a7c15U;
  if (many && !make_many_things()) return 1;
  const char ready = 'r';
  if (::write(kReadyFd, &ready, 1) != 1) return 1;
  ::close(kReadyFd);
  for (;;) ::pause();
}

}  // namespace ckpt::agent
